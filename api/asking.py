"""Routes that start runs, and ask something of them."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.datastructures import State

from api import shapes
from api.access import SUBMITTER, own
from api.desk import Desk
from api.options import Options
from api.problems import Problem
from api.runs import desk_of
from events import Event
from evomerge import facts, log
from evomerge.config import EvoMergeConfig
from evomerge.control import refusal
from evomerge.errors import ConfigError, ConflictError
from evomerge.harness import specs
from worker import fork as forks
from worker import plan as plans
from worker import submission
from worker.accounts import User
from worker.control import control

router = APIRouter(tags=["asking"])

KEY = Header(None, alias="Idempotency-Key", min_length=1, max_length=200,
             description="The same key means the same request: it is carried out once.")  # fmt: skip


#: Checks that open models and read data at once; others wait a while.
_CHECKS = threading.BoundedSemaphore(2)


@contextmanager
def _heavy() -> Iterator[None]:
    """Few at once, so that there are threads left for everybody else. Raises Problem."""
    if not _CHECKS.acquire(timeout=20):
        raise Problem(503, "Too much to do", "Others are checked: ask again.", {"Retry-After": "5"})
    try:
        yield
    finally:
        _CHECKS.release()


def plan_of(options: Options, wanted: shapes.Wanted) -> plans.Plan:
    """The plan that a body asks for. Raises ConfigError, Problem."""
    for name in wanted.data:
        if specs.is_task(name) and specs.parse(name).file is not None:
            raise ConfigError(f"{name}: a task file is code; give a task by its name.")
    _check_fields(wanted.config)
    data = [n if specs.is_task(n) else options.place(n) for n in wanted.data]
    models = [options.model(name) for name in wanted.models]
    base = options.model(wanted.base) if wanted.base else None
    return plans.make(wanted.config, models, base, data, elsewhere=True)


def _check_fields(config: dict[str, Any]) -> None:
    """Say which settings are wrong, each by its name."""
    try:
        EvoMergeConfig.model_validate(config)
    except ValidationError as error:
        found = [
            {
                "field": ".".join(["config", *map(str, e["loc"])]),
                "message": str(e["msg"]).removeprefix("Value error, "),
            }
            for e in error.errors()
        ]
        said = "; ".join(f"{e['field']}: {e['message']}" for e in found)
        raise Problem(422, "That cannot be used", said, errors=found) from error


@router.post("/runs/check", response_model=shapes.Checked)
def check(
    request: Request, wanted: shapes.Wanted, user: User = Depends(SUBMITTER)
) -> dict[str, Any]:
    """Everything that a start would stumble over; nothing is started."""
    submission.check_queued(wanted.priority, tuple(wanted.labels))
    plan = plan_of(request.app.state.options, wanted)
    with _heavy():
        found = plans.check(plan)
    return {
        "ok": True,
        "warnings": list(found.warnings),
        "parameters": found.parameters,
        "items": found.items,
        "config": plan.config.model_dump(mode="json"),
    }


@router.post(
    "/runs", status_code=201, response_model=shapes.Made,
    responses={200: {"model": shapes.Made, "description": "The key has started this run before."}},
)  # fmt: skip
def start(
    request: Request,
    wanted: shapes.Wanted,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> Response:
    """Check everything and record that a run is wanted; a worker carries it on."""
    return submitted(request.app.state, wanted, key, user)


def submitted(state: State, wanted: shapes.Wanted, key: str | None, user: User) -> JSONResponse:
    """201 with the new run, or 200 with the one that this key has started.

    `state` is the application's.
    """
    store = state.desk.store
    submission.check_queued(wanted.priority, tuple(wanted.labels), key)
    plan = plan_of(state.options, wanted)
    known = key is not None and store.version(log.stream(submission.keyed_name(key, user.name)))
    if not known:
        with _heavy():
            plans.check(plan)
    run = submission.submit(
        store, plan.config, plan.sources, plan.base, plan.data, priority=wanted.priority,
        labels=tuple(wanted.labels), key=key, quarantine=wanted.quarantine, by=user.name,
        reason=wanted.reason,
    )  # fmt: skip
    submission.project(store)
    return JSONResponse({"run": run}, 200 if known else 201, {"Location": f"/runs/{run}"})


def _ask(
    request: Request, run: str, user: User, event: Event, key: str | None = None
) -> dict[str, Any]:
    desk = desk_of(request)
    name = desk.name(run)
    owned(desk, name, user)
    before = control(desk.store, name, event, user.name, key)
    return {"run": name, "before": before.status, "asked": event.type}


def owned(desk: Desk, name: str, user: User) -> None:
    """Raise Problem 403 for somebody else's run."""
    with desk.state(name) as state:
        own(user, state.submitted.owner if state.submitted else "")


@router.post("/runs/{run}/pause", response_model=shapes.Asked)
def pause(
    request: Request, run: str, why: shapes.Reason, key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:  # fmt: skip
    """Let a run wait; tasks under way are finished."""
    return _ask(request, run, user, facts.Paused(reason=why.reason), key)


@router.post("/runs/{run}/resume", response_model=shapes.Asked)
def resume(
    request: Request, run: str, why: shapes.Reason, key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:  # fmt: skip
    """Let a paused run go on."""
    return _ask(request, run, user, facts.Resumed(reason=why.reason), key)


@router.post("/runs/{run}/cancel", response_model=shapes.Asked)
def cancel(
    request: Request, run: str, why: shapes.Reason, key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:  # fmt: skip
    """End a run for good."""
    return _ask(request, run, user, facts.Cancelled(reason=why.reason), key)


@router.post("/runs/{run}/retry", response_model=shapes.Asked)
def retry(
    request: Request, run: str, why: shapes.Reason, key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:  # fmt: skip
    """Forget failed attempts, so that they are made again."""
    return _ask(request, run, user, facts.Retried(reason=why.reason), key)


@router.post("/runs/{run}/priority", response_model=shapes.Asked)
def priority(
    request: Request, run: str, body: shapes.Priority, key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:  # fmt: skip
    """Change a run's priority."""
    event = facts.PriorityChanged(priority=body.priority, reason=body.reason)
    return _ask(request, run, user, event, key)


@router.post("/runs/{run}/fork", status_code=201, response_model=shapes.Made)
def fork(
    request: Request, run: str, body: shapes.Fork, key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> Response:  # fmt: skip
    """Branch a run, anybody's: its history up to a place, a future of its own."""
    desk = desk_of(request)
    branch = forks.plan(desk.store, desk.name(run), body.at, body.generation, body.settings)
    made = forks.fork(desk.store, branch, by=user.name, reason=body.reason, key=key)
    submission.project(desk.store)
    return JSONResponse({"run": made}, 201, {"Location": f"/runs/{made}"})


@router.post("/runs/{run}/export", status_code=202, response_model=shapes.Export)
async def export(
    request: Request, run: str, why: shapes.Reason, user: User = Depends(SUBMITTER)
) -> dict[str, Any]:
    """Write the champion as a model folder below the server's home; GET says how it stands."""
    name, out = await asyncio.to_thread(_deliverable, desk_of(request), run, user)
    command = [sys.executable, "-m", "worker.delivery", name, out, user.name]
    work = request.app.state.work
    await work.begin(f"export {name}", command, again=True, said=why.reason or "")
    return await asyncio.to_thread(_standing, request, name)


@router.get("/runs/{run}/export", response_model=shapes.Export)
def exported(request: Request, run: str, user: User = Depends(SUBMITTER)) -> dict[str, Any]:
    """How the writing of the champion's folder stands."""
    return _standing(request, desk_of(request).name(run))


def _deliverable(desk: Desk, run: str, user: User) -> tuple[str, str]:
    """The run's name and where its champion goes. Raises ConflictError, Problem."""
    name = desk.name(run)
    owned(desk, name, user)
    with desk.state(name) as state:
        refused = refusal(state, facts.Exported(recipe_id="", folder="", digest=""))
    if refused is not None:
        raise ConflictError(f"run {name} is left as it is: {refused}.")
    return name, str(_folder(desk, name))


def _folder(desk: Desk, run: str) -> Path:
    return desk.home.folder / "exports" / run


def _standing(request: Request, run: str) -> dict[str, Any]:
    work, folder = request.app.state.work, _folder(desk_of(request), run)
    status = work.status(f"export {run}")
    if status == "none" and folder.is_dir():
        status = "done"
    there = str(folder) if status == "done" else None
    return {"status": status, "folder": there, "error": work.failed(f"export {run}")}
