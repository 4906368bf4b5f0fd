"""Routes that start, fork and export runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from typing import Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.datastructures import State

from api import inputs
from api.access.authorization import SUBMITTER
from api.options import Options
from api.problems import UNPROCESSABLE, Problem
from api.routes.control import KEY, owned
from api.routes.runs import desk_of
from api.schemas import bodies as schemas
from api.schemas import texts
from api.state.run_cache import Desk
from events import Envelope, EventStore
from runs import kinds
from runs.errors import ConfigError, ConflictError
from runs.event_types import ModelReference
from runs.history.repository import stream_of
from runs.kinds import asked
from runs.kinds.asked import Named, Plan
from runs.kinds.commands import refusal
from runs.kinds.kind import Kind
from runs.lists import model_registry
from runs.record import user_events as events
from runs.streams import run_of
from weights.storage import model_origin
from worker import append
from worker.commands import fork as forks
from worker.commands import submit
from worker.commands.accounts import User
from worker.queue.reporting import wait_reason

router = APIRouter(tags=["asking"])


async def plan_of(
    state: State, wanted: schemas.Wanted, user: User, opened: bool, patience: float
) -> tuple[Plan, dict[str, Any]]:
    """Return the plan that a body asks for, and what was found where models and data are `opened`.

    Everything that the body and the log tell is checked before any model is read: a wrong setting,
    role or name is answered at once. `state` is the application's; `patience` is that of `locate`.
    Raises ConfigError, Problem.
    """
    submit.check_queued(wanted.priority, tuple(wanted.labels))
    if wanted.kind not in kinds.table():
        raise ConfigError(f"there is no kind of run {wanted.kind!r}: `GET /kinds` lists them.")
    kind, roles = kinds.of(wanted.kind), _roles(wanted)
    config, aliases = await asyncio.to_thread(_settings, kind, wanted)
    _check_fields(wanted.kind, kind.taken(config)[0])
    named = await asyncio.to_thread(kind.inputs_in, config, state.options.there)
    if max(len(named.models), len(named.data)) > schemas.MOST_MODELS:
        raise ConfigError(f"the settings name more than {schemas.MOST_MODELS} models or data.")
    given = [*(name for some in roles.values() for name in some), *named.models]
    found = await inputs.find(state, user, given, [*wanted.data, *named.data], aliases)
    if found.origins:
        await state.readers.ask(
            "check", user.name, open=False, **_order(wanted, config, roles, named, found)
        )
        found = await inputs.locate(state, user, found, opened or wanted.checked, patience)
    told = await state.readers.ask(
        "check", user.name, open=opened, **_order(wanted, config, roles, named, found)
    )
    known = {model.path: model for model in found.models.values() if model.name}
    return planned(wanted.kind, told, known), told


def _order(
    wanted: schemas.Wanted,
    config: dict[str, Any],
    roles: dict[str, list[str]],
    named: Named,
    found: inputs.Found,
) -> dict[str, Any]:
    """Return the order to a process that plans the run, with the places of models and data."""
    paths = {role: [found.models[name].path for name in some] for role, some in roles.items()}
    return {
        "kind": wanted.kind,
        "config": config,
        "models": {role: some for role, some in paths.items() if some},
        "data": [found.data[name] for name in wanted.data],
        "placed": {
            "models": {name: found.models[name].path for name in named.models},
            "data": {name: found.data[name] for name in named.data},
        },
    }


def _settings(kind: Kind, wanted: schemas.Wanted) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings that a body gives, those of a file among them, and its aliases.

    For a thread beside the event loop: a file may be large. Raises ConfigError.
    """
    if wanted.file is None:
        return asked.without_aliases(wanted.config)
    if wanted.config:
        raise ConfigError("the settings are given twice: as file and as config.")
    config = kind.read(wanted.file)
    try:
        texts.plain_values(config)
    except ValueError as error:
        raise ConfigError(f"the file: {error}.") from error
    return asked.without_aliases(config)


def _roles(wanted: schemas.Wanted) -> dict[str, list[str]]:
    """Return role → the names of its models. Raises ConfigError for a role that the kind has not."""
    kind = kinds.of(wanted.kind)
    if isinstance(wanted.models, list):
        roles = {kind.main_role: wanted.models}
    else:
        roles, known = dict(wanted.models), asked.roles(kind.submitted)
        if unknown := sorted(set(roles) - set(known)):
            has = ", ".join(known) or "none"
            raise ConfigError(f"{kind.title} has no models {unknown[0]!r}; the roles are: {has}.")
    if wanted.base is not None and roles.get("base"):
        raise ConfigError("the base is given twice: as base and among the models.")
    return roles if wanted.base is None else {**roles, "base": [wanted.base]}


def planned(kind: str, told: dict[str, Any], known: dict[str, ModelReference]) -> Plan:
    """Return the plan that a process beside the server has made.

    `known` has models that were found by name, by their paths.
    """
    given = {"run": "", "owner": "", **told["submitted"]}
    return asked.renamed(asked.plan_of(kinds.of(kind).submitted.model_validate(given), kind), known)


def _check_fields(kind: str, config: dict[str, Any]) -> None:
    """Raise Problem 422 with the wrong settings, each by its name."""
    try:
        kinds.of(kind).config.model_validate(config)
    except ValidationError as error:
        found = _wrong_fields(kinds.of(kind), error, "config")
        said = "; ".join(f"{e['field']}: {e['message']}" for e in found)
        raise Problem(422, UNPROCESSABLE, said, errors=found) from error


def _wrong_fields(kind: Kind, error: ValidationError, where: str) -> list[dict[str, str]]:
    """Return the settings that are wrong, by their places below `where` in the body."""
    faults = [kind.fault(e) for e in error.errors()]
    return [
        {"field": ".".join(filter(None, [where, name])), "message": what} for name, what in faults
    ]


@router.post("/runs/check", response_model=schemas.Checked)
async def check(
    request: Request, wanted: schemas.Wanted, user: User = Depends(SUBMITTER)
) -> dict[str, Any]:
    """Check settings, models and data as a start would; nothing is started."""
    return await checked(request.app.state, wanted, user)


async def checked(state: State, wanted: schemas.Wanted, user: User) -> dict[str, Any]:
    """Return what a check finds: warnings, parameters, items, settings. Raises ConfigError, Problem.

    `state` is the application's.
    """
    plan, told = await plan_of(state, wanted, user, True, inputs.CHECK_PATIENCE)
    waits = await asyncio.to_thread(_waits, state.desk, plan, wanted.labels)
    return {
        "ok": True,
        "warnings": [*told["warnings"], *waits],
        "parameters": told["parameters"],
        "items": told["items"],
        "config": kinds.of(plan.kind).shown(plan.config),
    }


def _waits(desk: Desk, plan: Plan, labels: list[str]) -> list[str]:
    """Return a warning if no connected worker could take the run."""
    row = {"run": "", "device": plan.config.device, "labels": " ".join(labels)}
    row, devices = {**row, "paused": None, "profile": None}, desk.roster.devices()
    if not (why := wait_reason.reason(row, devices)):
        return []
    helps = wait_reason.advice(row, devices)
    return [f"The run would wait for {why}." + (f" What helps: `{helps}`." if helps else "")]


@router.post(
    "/runs",
    status_code=201,
    response_model=schemas.Started,
    responses={
        200: {"model": schemas.Started, "description": "The key has started this run before."}
    },
)
async def start(
    request: Request,
    wanted: schemas.Wanted,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> Response:
    """Check everything and record that a run is wanted; a worker carries it on."""
    return await submitted(request.app.state, wanted, key, user)


async def submitted(
    state: State, wanted: schemas.Wanted, key: str | None, user: User
) -> JSONResponse:
    """Submit a run; answer 201 with the new run, or 200 with the run that this key has started.

    `state` is the application's.
    """
    run, fresh, warnings = await recorded(state, wanted, key, user)
    told = {"run": run, "warnings": warnings}
    return JSONResponse(told, 201 if fresh else 200, {"Location": f"/runs/{run}"})


async def recorded(
    state: State, wanted: schemas.Wanted, key: str | None, user: User
) -> tuple[str, bool, list[str]]:
    """Submit a run; return its name, False if this key has started it before, and warnings.

    `state` is the application's. Raises ConfigError, ConflictError, Problem.
    """
    submit.check_queued(key=key)
    known = await asyncio.to_thread(_keyed, state.desk.store, key, user)
    if known is not None and known.correlation == _digest(wanted):
        return run_of(known.stream), False, list(kinds.of(wanted.kind).taken(wanted.config)[1])
    opened = known is None and wanted.checked
    plan, told = await plan_of(state, wanted, user, opened, inputs.START_PATIENCE)
    run = await asyncio.to_thread(_record, state.desk.store, plan, wanted, key, user)
    return run, known is None, told.get("warnings", [])


def _keyed(store: EventStore, key: str | None, user: User) -> Envelope | None:
    """Return the row that a user's key has recorded; None if there is none."""
    if key is None:
        return None
    stream = stream_of(store, submit.keyed_name(key, user.name))
    return None if stream is None else next(store.iterate(stream, upto=1), None)


def _digest(wanted: schemas.Wanted) -> str:
    """Return the digest of a body as it was asked: what a name in it means may change later."""
    # Earlier versions did not have these fields.
    later = {field for field in ("file", "name") if getattr(wanted, field) is None}
    later |= {"checked"} if wanted.checked else set()
    text = json.dumps(wanted.model_dump(mode="json", exclude=later), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _record(
    store: EventStore, plan: Plan, wanted: schemas.Wanted, key: str | None, user: User
) -> str:
    run = submit.submit(
        store,
        plan,
        priority=wanted.priority,
        labels=tuple(wanted.labels),
        key=key,
        quarantine=wanted.quarantine,
        by=user.name,
        reason=wanted.reason,
        asked=None if key is None else _digest(wanted),
        words=events.Described(name=wanted.name or None),
    )
    append.project(store)
    return run


@router.post("/runs/{run}/fork", status_code=201, response_model=schemas.Made)
def fork(
    request: Request,
    run: str,
    body: schemas.Fork,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> Response:
    """Fork a run of any user: the history up to a place, and a future of its own."""
    desk = desk_of(request)
    name = desk.name(run)
    _check_changes(desk, name, body.settings, request.app.state.options)
    try:
        branch = forks.plan(desk.store, name, body.at, body.generation, body.settings)
    except ConfigError as error:
        if not isinstance(error.__cause__, ValidationError):
            raise
        kind = kinds.kind_of(stream_of(desk.store, name) or "")
        assert kind
        found = _wrong_fields(kind, error.__cause__, "settings")
        raise Problem(422, UNPROCESSABLE, str(error), errors=found) from error
    made = forks.fork(desk.store, branch, by=user.name, reason=body.reason, key=key)
    append.project(desk.store)
    return JSONResponse({"run": made}, 201, {"Location": f"/runs/{made}"})


def _check_changes(desk: Desk, run: str, changes: dict[str, Any], options: Options) -> None:
    """Raise ConfigError for a change of settings that name models and files, if there are roots."""
    kind = kinds.kind_of(stream_of(desk.store, run) or "")
    naming = sorted(set(changes) & kind.naming) if kind else []
    if kind and naming and not options.anywhere:
        raise ConfigError(
            f"setting {naming[0]} of {kind.title} names models and files, which stay as they are in a "
            "fork over the API: start a new run, or fork at a terminal."
        )


@router.post("/runs/{run}/export", status_code=202, response_model=schemas.Export)
async def export(
    request: Request, run: str, asked: schemas.Exporting, user: User = Depends(SUBMITTER)
) -> dict[str, Any]:
    """Write the result, or another model of the run, into the server's home; GET says how it stands."""
    model = asked.model or ""
    name, out = await asyncio.to_thread(_deliverable, desk_of(request), run, model, user)
    command = [sys.executable, "-m", "worker.exports.delivery", name, out, user.name, model]
    work = request.app.state.work
    said = asked.reason or ""
    await work.begin(_job(name, model), command, again=True, said=said, by=user.name)
    return await asyncio.to_thread(_standing, request, name, model)


@router.get("/runs/{run}/export", response_model=schemas.Export)
def exported(
    request: Request,
    run: str,
    model: str = Query("", max_length=100, description="Of a model that is not the result."),
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:
    """Return the state of the export of the run's result, or of another of its models."""
    return _standing(request, desk_of(request).name(run), model)


def _deliverable(desk: Desk, run: str, model: str, user: User) -> tuple[str, str]:
    """Return the run's name and the folder to write. Raises ConflictError, NotFoundError, Problem."""
    name = owned(desk, run, user)
    with desk.state(name) as state:
        refused = refusal(state, events.Exported(recipe_id="", folder="", digest="0" * 64))
    if refused is not None:
        raise ConflictError(f"run {name} was not changed: {refused}.")
    if model:
        model_origin.model(desk.store, name, model)
    return name, str(desk.home.exports(name, model))


def _job(run: str, model: str) -> str:
    return f"export {run} {model}".strip()


def _standing(request: Request, run: str, model: str) -> dict[str, Any]:
    desk, work = desk_of(request), request.app.state.work
    folder = desk.home.exports(run, model)
    status = work.status(_job(run, model))
    if status == "none" and folder.is_dir():
        status = "done"
    digest = None
    if status == "done" and model:
        digest = model_origin.model(desk.store, run, model).digest
    elif status == "done":
        with desk.state(run) as state:
            digest = kinds.of(state.kind).result(state)
    return {
        "status": status,
        "folder": str(folder) if status == "done" else None,
        "error": work.failed(_job(run, model)),
        "model": digest and model_registry.id_of(digest),
    }
