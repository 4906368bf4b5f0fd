"""Routes that start, fork and export runs; models and data that their requests name."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.datastructures import State

from agent_forge.api.access.authorization import SUBMITTER
from agent_forge.api.options import Options
from agent_forge.api.problems import UNPROCESSABLE, HttpError
from agent_forge.api.routes.control import KEY, owned
from agent_forge.api.routes.runs import desk_of
from agent_forge.api.schemas import bodies
from agent_forge.api.schemas import bodies as schemas
from agent_forge.api.schemas.runs import Json
from agent_forge.api.state.run_cache import RunReader
from agent_forge.evaluation.lm_eval import spec
from agent_forge.events import Envelope, EventStore
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, ConflictError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.history.repository import stream_of
from agent_forge.runs.kinds import asked
from agent_forge.runs.kinds.asked import NamedInputs, Plan
from agent_forge.runs.kinds.controls import refusal
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.lists import model_registry
from agent_forge.runs.record import events
from agent_forge.runs.streams import run_of
from agent_forge.weights.folders import gguf_names
from agent_forge.weights.folders.sources import ALIASES
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage import model_origin as origins
from agent_forge.worker import append
from agent_forge.worker.commands import fork as forks
from agent_forge.worker.commands import submit
from agent_forge.worker.commands.accounts import User
from agent_forge.worker.queue.reporting import activity

#: Seconds that a request waits for models of runs or of the registry to be found or built. A page that
#: checks while its user types asks again, and shows what it waits for; who starts a run waits.
CHECK_PATIENCE, START_PATIENCE = 5.0, 50.0


@dataclass(frozen=True)
class RequestInputs:
    """Models and data of a request, found by their names."""

    #: Name → the model: its path is one below a root, a Hub id or a built-in alias. Its name is empty
    #: if the folder's or the Hub's name will do.
    models: Mapping[str, ModelReference]
    #: Name → the path below a root, or the name of a task, a data set or built-in items.
    data: Mapping[str, str]
    #: Name → a model of the log, and its folders that may be read. Which of them has the weights is
    #: not known yet: the path in `models` is where they are expected.
    origins: Mapping[str, tuple[origins.LogModel, list[str]]]


async def find(
    state: State, user: User, models: Sequence[str], data: Sequence[str], aliases: Mapping[str, str]
) -> RequestInputs:
    """Return the RequestInputs that the names mean; `aliases`: other name → name of a model.

    `state` is the application's. The log and the names of files are read, and no model is opened.
    Raises ConfigError for a name that means nothing.
    """
    tasks = [name for name in data if spec.is_task(name)]
    for name in tasks:
        if spec.parse(name).file is not None:
            raise ConfigError(f"{name}: a task file is code; give a task by its name.")
    options: Options = state.options
    files = [name for name in data if name not in tasks]
    places = await asyncio.to_thread(_places, options.model_place, models)
    meant = {name: aliases.get(name, name) for name in places if not _is_path(places[name])}
    places |= await asyncio.to_thread(_places, options.model_place, list(meant.values()))
    placed = await asyncio.to_thread(_places, options.data, files)
    references: dict[str, ModelReference] = {}
    log_origins: dict[str, tuple[origins.LogModel, list[str]]] = {}
    for name in dict.fromkeys(models):
        text = meant.get(name, name)
        origin = None
        if not (_is_path(places[text]) or text in ALIASES or gguf_names.is_prefixed(text)):
            origin = await asyncio.to_thread(_origin, state, text)
        if origin is None:
            options.check_fetched(places[text])
            model = ModelReference(name="", path=places[text])
        else:
            log_origins[name] = origin
            model = await asyncio.to_thread(_expected, state, *origin)
        alias = name if text != name and not model.name else model.name
        references[name] = model.model_copy(update={"name": alias})
    return RequestInputs(references, {name: placed.get(name, name) for name in data}, log_origins)


async def locate(
    state: State, user: User, inputs: RequestInputs, checked: bool, patience: float
) -> RequestInputs:
    """Return `inputs` with the folders that hold the models of the log; build them if need be.

    If not `checked`, only models of the Hub are looked for: a worker finds or builds the others where
    they are expected, by their digests.
    A run's result and a model of the registry are found by name: every user may read both. Only
    folders below the server's roots, or of its own home, are read. No thread is held while a model is
    built. Raises Problem; 503 if the models take longer than `patience` seconds.
    """
    models, clock = dict(inputs.models), asyncio.get_running_loop().time
    end = clock() + patience
    sought = {n: source for n, source in inputs.origins.items() if checked or source[0].hub is not None}
    for number, (name, (origin, folders)) in enumerate(sought.items(), 1):
        folder = await state.work.outcome(
            f"model {origin.digest}",
            list(origins.COMMAND),
            origin.request(folders),
            max(0.0, end - clock()),
            user.name,
            f"model {number} of {len(sought)} ({name[:200]})",
            _files,
        )
        models[name] = models[name].model_copy(update={"path": folder})
    return replace(inputs, models=models, origins={})


def _files(folder: str) -> tuple[tuple[str, int, int], ...] | None:
    """Return (name, bytes, time of change in ns) of each file of a folder; None if it is missing.

    As long as these stay the same, the folder holds the same model.
    """
    try:
        with os.scandir(folder) as files:
            facts = [(file.name, file.stat()) for file in files]
    except OSError:
        return None
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in facts))


def _is_path(placed: str) -> bool:
    return Path(placed).is_absolute()


def _places(place: Callable[[str], str], names: Sequence[str]) -> dict[str, str]:
    """Return {name: place(name)}; `place` is called once for each name.

    For a thread beside the event loop: a folder may have many files. Raises ConfigError.
    """
    return {name: place(name) for name in dict.fromkeys(names)}


def _origin(state: State, text: str) -> tuple[origins.LogModel, list[str]] | None:
    """Return (the log's model of this name, its readable folders) or None. Raises ConfigError."""
    options: Options = state.options
    origin = origins.find(state.desk.store, text)
    if origin is None:
        return None
    if origin.hub is not None:
        options.model(origin.hub)
    home = state.desk.home.folder.resolve()
    folders = [
        place
        for place in origin.folders
        if options.inside(Path(place)) or home in Path(place).resolve().parents
    ]
    return origin, folders


def _expected(state: State, origin: origins.LogModel, folders: Sequence[str]) -> ModelReference:
    """Return a reference to a model of the log, its path the folder where its weights are expected.

    Raises ConfigError for a registered model whose folder is missing or may not be read.
    """
    built = state.desk.home.folder / "models" / origin.digest
    there = [place for place in (str(built), *folders) if Path(place).is_dir()]
    if not there and origin.run is None and origin.hub is None:
        raise ConfigError(origins.gone(origin.what, folders, origin.digest))
    return origin.reference(there[0] if there else str(built))


router = APIRouter(tags=["asking"])


async def plan_of(
    state: State, body: schemas.Wanted, user: User, opened: bool, patience: float
) -> tuple[Plan, Json]:
    """Return (the plan that a body asks for, the report of the process that checked the body).

    If `opened`, that process opens models and data.

    Everything that the body and the log tell is checked before any model is read: a wrong setting,
    role or name is answered at once. `state` is the application's; `patience` is that of `locate`.
    Raises ConfigError, Problem.
    """
    submit.check_queued(body.priority, tuple(body.labels))
    if body.kind not in kinds.table():
        raise ConfigError(f"there is no kind of run {body.kind!r}: `GET /kinds` lists them.")
    kind, roles = kinds.of(body.kind), _roles(body)
    config, aliases = await asyncio.to_thread(_settings, kind, body)
    _check_fields(body.kind, kind.settings.taken(config)[0])
    named = await asyncio.to_thread(kind.requests.inputs_in, config, state.options.there)
    if max(len(named.models), len(named.data)) > schemas.MOST_MODELS:
        raise ConfigError(f"the settings name more than {schemas.MOST_MODELS} models or data.")
    names = [*(name for models in roles.values() for name in models), *named.models]
    places = await find(state, user, names, [*body.data, *named.data], aliases)
    if places.origins:
        await state.readers.ask(
            "check", user.name, open=False, **_order(body, config, roles, named, places)
        )
        places = await locate(state, user, places, opened or body.checked, patience)
    report = await state.readers.ask(
        "check", user.name, open=opened, **_order(body, config, roles, named, places)
    )
    references = {model.path: model for model in places.models.values() if model.name}
    return planned(body.kind, report, references), report


def _order(
    body: schemas.Wanted,
    config: Json,
    roles: dict[str, list[str]],
    named: NamedInputs,
    places: RequestInputs,
) -> Json:
    """Return the order to a process that plans the run, with the places of models and data."""
    paths = {role: [places.models[name].path for name in names] for role, names in roles.items()}
    return {
        "kind": body.kind,
        "config": config,
        "models": {role: folders for role, folders in paths.items() if folders},
        "data": [places.data[name] for name in body.data],
        "placed": {
            "models": {name: places.models[name].path for name in named.models},
            "data": {name: places.data[name] for name in named.data},
        },
    }


def _settings(kind: Kind, body: schemas.Wanted) -> tuple[Json, dict[str, str]]:
    """Return (settings of a body or of its file, its aliases: other name → name of a model).

    For a thread beside the event loop: a file may be large. Raises ConfigError.
    """
    if body.file is None:
        return asked.without_aliases(body.config)
    if body.config:
        raise ConfigError("the settings are given twice: as file and as config.")
    config = kind.requests.read(body.file)
    try:
        bodies.plain_values(config)
    except ValueError as error:
        raise ConfigError(f"the file: {error}.") from error
    return asked.without_aliases(config)


def _roles(body: schemas.Wanted) -> dict[str, list[str]]:
    """Return role → the names of its models. Raises ConfigError for a role that the kind has not."""
    kind = kinds.of(body.kind)
    if isinstance(body.models, list):
        roles = {kind.main_role: body.models}
    else:
        roles, names = dict(body.models), asked.roles(kind.submitted)
        if unknown := sorted(set(roles) - set(names)):
            has = ", ".join(names) or "none"
            raise ConfigError(f"{kind.title} has no models {unknown[0]!r}; the roles are: {has}.")
    if body.base is not None and roles.get("base"):
        raise ConfigError("the base is given twice: as base and among the models.")
    return roles if body.base is None else {**roles, "base": [body.base]}


def planned(kind: str, report: Json, references: dict[str, ModelReference]) -> Plan:
    """Return the plan in the `report` of a process beside the server.

    `references`: path → model, of models that were found by name.
    """
    fields = {"run": "", "owner": "", **report["submitted"]}
    return asked.renamed(
        asked.plan_of(kinds.of(kind).submitted.model_validate(fields), kind), references
    )


def _check_fields(kind: str, config: Json) -> None:
    """Raise Problem 422 with the wrong settings, each by its name."""
    try:
        kinds.of(kind).config.model_validate(config)
    except ValidationError as error:
        faults = _wrong_fields(kinds.of(kind), error, "config")
        detail = "; ".join(f"{e['field']}: {e['message']}" for e in faults)
        raise HttpError(422, UNPROCESSABLE, detail, errors=faults) from error


def _wrong_fields(kind: Kind, error: ValidationError, where: str) -> list[dict[str, str]]:
    """Return {field, message} for each wrong setting; the field is its place below `where`."""
    faults = [kind.settings.fault(e) for e in error.errors()]
    return [{"field": ".".join(filter(None, [where, name])), "message": what} for name, what in faults]


@router.post("/runs/check", response_model=schemas.Checked)
async def check(request: Request, wanted: schemas.Wanted, user: User = Depends(SUBMITTER)) -> Json:
    """Check settings, models and data as a start would; nothing is started."""
    return await checked(request.app.state, wanted, user)


async def checked(state: State, body: schemas.Wanted, user: User) -> Json:
    """Return {ok, warnings, parameters, items, config} of a check. Raises ConfigError, Problem."""
    plan, report = await plan_of(state, body, user, True, CHECK_PATIENCE)
    waits = await asyncio.to_thread(_waits, state.desk, plan, body.labels)
    return {
        "ok": True,
        "warnings": [*report["warnings"], *waits],
        "parameters": report["parameters"],
        "items": report["items"],
        "config": kinds.of(plan.kind).settings.shown(plan.config),
    }


def _waits(desk: RunReader, plan: Plan, labels: list[str]) -> list[str]:
    """Return one warning if no connected worker could take the run, else []."""
    row = {"run": "", "device": plan.config.device, "labels": " ".join(labels)}
    row, devices = {**row, "paused": None, "profile": None}, desk.roster.devices()
    if not (why := activity.reason(row, devices)):
        return []
    helps = activity.advice(row, devices)
    return [f"The run would wait for {why}." + (f" What helps: `{helps}`." if helps else "")]


@router.post(
    "/runs",
    status_code=201,
    response_model=schemas.Started,
    responses={200: {"model": schemas.Started, "description": "The key has started this run before."}},
)
async def start(
    request: Request, wanted: schemas.Wanted, key: str | None = KEY, user: User = Depends(SUBMITTER)
) -> Response:
    """Check everything and record that a run is wanted; a worker carries it on."""
    return await submitted(request.app.state, wanted, key, user)


async def submitted(state: State, body: schemas.Wanted, key: str | None, user: User) -> JSONResponse:
    """Submit a run; return the answer: 201 with the new run, 200 with the earlier run of the key."""
    run, fresh, warnings = await recorded(state, body, key, user)
    answer = {"run": run, "warnings": warnings}
    return JSONResponse(answer, 201 if fresh else 200, {"Location": f"/runs/{run}"})


async def recorded(
    state: State, body: schemas.Wanted, key: str | None, user: User
) -> tuple[str, bool, list[str]]:
    """Submit a run; return (its id, False if this key has started it before, warnings).

    `state` is the application's. Raises ConfigError, ConflictError, Problem.
    """
    submit.check_queued(key=key)
    row = await asyncio.to_thread(_keyed, state.desk.store, key, user)
    if row is not None and row.correlation == _digest(body):
        return run_of(row.stream), False, list(kinds.of(body.kind).settings.taken(body.config)[1])
    opened = row is None and body.checked
    plan, report = await plan_of(state, body, user, opened, START_PATIENCE)
    run = await asyncio.to_thread(_record, state.desk.store, plan, body, key, user)
    return run, row is None, report.get("warnings", [])


def _keyed(store: EventStore, key: str | None, user: User) -> Envelope | None:
    """Return the first row of the run that a user has started with this key; None without one."""
    if key is None:
        return None
    stream = stream_of(store, submit.keyed_name(key, user.name))
    return None if stream is None else next(store.iterate(stream, upto=1), None)


def _digest(body: schemas.Wanted) -> str:
    """Return the SHA-256 of a body as it was sent: the meaning of its names may change later."""
    # Earlier versions did not have these fields.
    later = {field for field in ("file", "name") if getattr(body, field) is None}
    later |= {"checked"} if body.checked else set()
    text = json.dumps(body.model_dump(mode="json", exclude=later), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _record(store: EventStore, plan: Plan, body: schemas.Wanted, key: str | None, user: User) -> str:
    run = submit.submit(
        store,
        plan,
        priority=body.priority,
        labels=tuple(body.labels),
        key=key,
        quarantine=body.quarantine,
        by=user.name,
        reason=body.reason,
        request_digest=None if key is None else _digest(body),
        words=events.Described(name=body.name or None),
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
        faults = _wrong_fields(kind, error.__cause__, "settings")
        raise HttpError(422, UNPROCESSABLE, str(error), errors=faults) from error
    new_run = forks.fork(desk.store, branch, by=user.name, reason=body.reason, key=key)
    append.project(desk.store)
    return JSONResponse({"run": new_run}, 201, {"Location": f"/runs/{new_run}"})


def _check_changes(desk: RunReader, run: str, changes: Json, options: Options) -> None:
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
) -> Json:
    """Write the result, or another model of the run, into the server's home; GET says how it stands."""
    model = asked.model or ""
    name, out = await asyncio.to_thread(_deliverable, desk_of(request), run, model, user)
    command = [sys.executable, "-m", "agent_forge.worker.exports.delivery", name, out, user.name, model]
    work = request.app.state.work
    reason = asked.reason or ""
    await work.begin(_job(name, model), command, again=True, text=reason, by=user.name)
    return await asyncio.to_thread(_standing, request, name, model)


@router.get("/runs/{run}/export", response_model=schemas.Export)
def exported(
    request: Request,
    run: str,
    model: str = Query("", max_length=100, description="Of a model that is not the result."),
    user: User = Depends(SUBMITTER),
) -> Json:
    """Return the state of the export of the run's result, or of another of its models."""
    return _standing(request, desk_of(request).name(run), model)


def _deliverable(desk: RunReader, run: str, model: str, user: User) -> tuple[str, str]:
    """Return (id of the run, folder to write). Raises ConflictError, NotFoundError, Problem."""
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


def _standing(request: Request, run: str, model: str) -> Json:
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
            result = kinds.of(state.kind).models.result(state)
            digest = result and result.digest
    return {
        "status": status,
        "folder": str(folder) if status == "done" else None,
        "error": work.failed(_job(run, model)),
        "model": digest and model_registry.id_of(digest),
    }
