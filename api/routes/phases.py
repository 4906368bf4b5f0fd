"""Paths by phase (docs/api.md): aliases of the resource form, in both spellings, for every kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.datastructures import State

from agent_forge.api.access.authorization import SUBMITTER, VIEWER
from agent_forge.api.routes.commands import submitted
from agent_forge.api.routes.control import KEY
from agent_forge.api.routes.runs import desk_of
from agent_forge.api.schemas import bodies as schemas
from agent_forge.api.schemas.runs import Json
from agent_forge.api.state import children as heads
from agent_forge.api.state.run_cache import RunReader
from agent_forge.events import Envelope
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConflictError, NotFoundError
from agent_forge.runs.history import repository
from agent_forge.runs.kinds.state import State as RunState
from agent_forge.runs.lists import queries
from agent_forge.worker.commands.accounts import User

router = APIRouter(prefix="/phases", tags=["phases"])

#: The phase of a request that names none: the phase that the source documents describe.
PHASE = "evomerge"

KIND = Path(max_length=64, description="A kind of run: see `GET /kinds`.")
RUN = Query(None, max_length=200, description="Default: the newest.")
COMPLETED = Query(None, max_length=200, description="Default: the newest that has completed.")


@router.post("/{kind}/start", status_code=201, response_model=schemas.StartedPhase)
async def start(
    request: Request,
    wanted: schemas.Phase,
    kind: str = KIND,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> Response:
    """Submit a run of a kind, as `POST /runs` does."""
    wanted = wanted.model_copy(update={"kind": _known(kind)})
    return await started(request.app.state, wanted, key, user)


@router.post("/start", status_code=201, response_model=schemas.StartedPhase)
async def start_phase(
    request: Request, wanted: schemas.Phase, key: str | None = KEY, user: User = Depends(SUBMITTER)
) -> Response:
    """Submit a run of the phase that the body names as `phase` or `phase_name`."""
    return await started(request.app.state, wanted, key, user)


async def started(state: State, body: schemas.Phase, key: str | None, user: User) -> JSONResponse:
    """Submit a run; return the answer of `submitted` with the source documents' fields, too.

    `state` is the application's.
    """
    response = await submitted(state, body.plain(), key, user)
    answer = json.loads(bytes(response.body))
    run = answer["run"]
    answer |= {"task_id": run, "phase": body.kind}
    answer["status"] = await asyncio.to_thread(_status, state, run)
    return JSONResponse(answer, response.status_code, {"Location": response.headers["Location"]})


def _status(state: State, run: str) -> str:
    with state.desk.state(run) as now:
        return now.status


def _known(kind: str) -> str:
    """Return the kind as it is. Raises NotFoundError, which names the known kinds, for another."""
    if kind not in kinds.table():
        names = ", ".join(sorted(kinds.table()))
        raise NotFoundError(f"there is no phase {kind!r}: there are {names}.")
    return kind


def _named(request: Request, kind: str, run: str | None) -> str:
    """Return the id of the run, or of the newest of the kind if `run` is None. Raises NotFoundError."""
    desk = desk_of(request)
    if run is None:
        rows, _ = queries.page(desk.store, 1, kind=_known(kind))
        if not rows:
            raise NotFoundError(f"there are no runs yet of {kind}.")
        return rows[0]["run"]
    name = desk.name(run)
    with desk.state(name) as state:
        if state.kind != _known(kind):
            raise NotFoundError(f"run {name} is {kinds.of(state.kind).title}: see `GET /runs/{name}`.")
    return name


@router.get(
    "/{kind}/status",
    response_model=schemas.PhaseStatus,
    response_model_exclude_unset=True,
    dependencies=[Depends(VIEWER)],
)
def status(request: Request, kind: str = KIND, run: str | None = RUN) -> Json:
    """Return the progress of a run, work inside a generation included."""
    return _status_of(desk_of(request), _named(request, kind, run))


def _status_of(desk: RunReader, name: str) -> Json:
    with desk.state(name) as state:
        message = kinds.of(state.kind).view.message(state)
    message.pop("type")
    head = heads.head(desk, name)
    share = message["progress"] if head["inside"] is None else head["inside"]
    return {**message, "progress": share, "percent": 100 * share, "message": _message(head)}


def _message(head: Json) -> str:
    """Return in words the task that a run does, or what it waits for, or its status."""
    if head["doing"]:
        return head["doing"]
    return f"waiting for {head['waits_for']}" if head["waits_for"] else head["status"]


@router.get(
    "/status",
    response_model=schemas.Phases,
    response_model_exclude_unset=True,
    dependencies=[Depends(VIEWER)],
)
def phases(request: Request) -> Json:
    """Return the state of the newest run of each phase, and above it that of the newest of all."""
    desk = desk_of(request)
    newest = queries.newest(desk.store)
    statuses = {
        kind: _status_of(desk, newest[kind]["run"]) if kind in newest else None
        for kind in sorted(kinds.table())
    }
    if not any(statuses.values()):
        none = {"phase": PHASE, "task_id": None, "status": None, "progress": 0.0}
        return {**none, "percent": 0.0, "message": "no run yet", "phases": statuses}
    rows = [row for kind, row in newest.items() if kind in statuses]
    last = max(rows, key=lambda row: row["first"])["run"]
    whole = next(
        phase_status
        for phase_status in statuses.values()
        if phase_status and phase_status["run"] == last
    )
    return {**whole, "phases": statuses}


@router.get(
    "/{kind}/results",
    dependencies=[Depends(VIEWER)],
    responses={409: {"model": schemas.Problem, "description": "The run has not completed."}},
)
def results(request: Request, kind: str = KIND, run: str | None = COMPLETED) -> Response:
    """Return the results of a completed run: the `metrics` of the source documents, and the report."""
    desk = desk_of(request)
    if run is None:
        rows, _ = queries.page(desk.store, 1, kind=_known(kind), status="completed")
        run = rows[0]["run"] if rows else None
    with completed(desk, _named(request, kind, run)) as (state, rows):
        body = kinds.of(state.kind).view.report(state, rows)
    return JSONResponse({"success": True, **body})


@contextmanager
def completed(desk: RunReader, run: str) -> Iterator[tuple[RunState, list[Envelope]]]:
    """Yield (state, rows of the history) of a completed run. Raises ConflictError for another."""
    with desk.state(run) as state:
        if state.completed is None:
            raise ConflictError(f"run {run} is {state.status}: there is no result.")
        yield state, list(repository.history(desk.store, run))
