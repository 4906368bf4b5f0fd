"""The source documents' paths for merging runs: aliases of the resource form, in both spellings."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.datastructures import State

from api.access.authorization import SUBMITTER, VIEWER
from api.routes.commands import KEY, submitted
from api.routes.runs import desk_of
from api.schemas import bodies as schemas
from api.state import head as heads
from runs import kinds
from runs.errors import NotFoundError
from runs.history import repository
from runs.lists import queries
from worker.commands.accounts import User

router = APIRouter(prefix="/phases", tags=["phases"])

#: The phase that the documents describe, by its kind of run.
PHASE = "evomerge"

RUN = Query(None, max_length=200, description="Default: the newest.")


@router.post("/evomerge/start", status_code=201, response_model=schemas.StartedPhase)
async def start(
    request: Request,
    wanted: schemas.Phase,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> Response:
    """Submit a merging run, as `POST /runs` does."""
    return await started(request.app.state, wanted, key, user)


@router.post("/start", status_code=201, response_model=schemas.StartedPhase)
async def start_phase(
    request: Request, wanted: schemas.Phase, key: str | None = KEY, user: User = Depends(SUBMITTER)
) -> Response:
    """Submit a run of the phase that the body names as `phase` or `phase_name`: evomerge."""
    return await started(request.app.state, wanted, key, user)


async def started(state: State, wanted: schemas.Phase, key: str | None, user: User) -> JSONResponse:
    """Start it and answer with the documents' fields too. `state` is the application's."""
    made = await submitted(state, wanted.plain(), key, user)
    run = json.loads(bytes(made.body))["run"]
    status = await asyncio.to_thread(_status, state, run)
    told = {"run": run, "task_id": run, "phase": PHASE, "status": status}
    return JSONResponse(told, made.status_code, {"Location": made.headers["Location"]})


def _status(state: State, run: str) -> str:
    with state.desk.state(run) as now:
        return now.status


def _newest(request: Request, run: str | None) -> str:
    """Return the whole name of the run, or of the newest. Raises NotFoundError for other kinds."""
    desk = desk_of(request)
    if run is None:
        rows, _ = queries.page(desk.store, 1, kind=PHASE)
        if not rows:
            raise NotFoundError("there are no runs yet.")
        return rows[0]["run"]
    name = desk.name(run)
    with desk.state(name) as state:
        if state.kind != PHASE:
            raise NotFoundError(
                f"run {name} is {kinds.of(state.kind).title}: see `GET /runs/{name}`."
            )
    return name


@router.get("/evomerge/status", response_model=schemas.PhaseStatus, dependencies=[Depends(VIEWER)])
def status(request: Request, run: str | None = RUN) -> dict[str, Any]:
    """Return the progress of a run, work inside a generation included."""
    desk = desk_of(request)
    name = _newest(request, run)
    with desk.state(name) as state:
        told = kinds.of(state.kind).message(state)
    told.pop("type")
    seen = heads.head(desk, name)
    share = told["progress"] if seen["inside"] is None else seen["inside"]
    return {**told, "progress": share, "percent": 100 * share, "message": _message(seen)}


def _message(seen: dict[str, Any]) -> str:
    """Return what the run does, or waits for, or how it ended, in words."""
    if seen["doing"]:
        return seen["doing"]
    return f"waiting for {seen['waits_for']}" if seen["waits_for"] else seen["status"]


@router.get(
    "/status",
    response_model=schemas.Phases,
    response_model_exclude_unset=True,
    dependencies=[Depends(VIEWER)],
)
def phases(request: Request) -> dict[str, Any]:
    """Return the state of the newest merging run, as a phase and for all phases."""
    rows, _ = queries.page(desk_of(request).store, 1, kind=PHASE)
    if not rows:
        none = {"phase": PHASE, "task_id": None, "status": None, "progress": 0.0}
        return {**none, "percent": 0.0, "message": "no run yet", "phases": {PHASE: None}}
    found = status(request, rows[0]["run"])
    return {**found, "phases": {PHASE: found}}


@router.get(
    "/evomerge/results",
    dependencies=[Depends(VIEWER)],
    responses={409: {"model": schemas.Problem, "description": "The run has not completed."}},
)
def results(request: Request, run: str | None = RUN) -> Response:
    """Return the results of a completed run: the `metrics` of the source documents, and the report."""
    desk = desk_of(request)
    name = _newest(request, run)
    with desk.state(name) as state:
        if state.completed is None:
            from runs.errors import ConflictError

            raise ConflictError(f"run {name} is {state.status}: there is no result.")
        rows = list(repository.history(desk.store, name))
        body = kinds.of(state.kind).report(state, rows)
    return JSONResponse({"success": True, **body})
