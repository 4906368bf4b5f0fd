"""The source documents' paths: thin aliases of the resource form."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from api import shapes, views
from api.access import SUBMITTER, VIEWER
from api.asking import KEY, submitted
from api.runs import desk_of
from evomerge import listing, log, report
from evomerge.errors import NotFoundError
from worker.accounts import User

router = APIRouter(prefix="/phases", tags=["phases"])

RUN = Query(None, max_length=200, description="Default: the newest.")


@router.post("/evomerge/start", status_code=201, response_model=shapes.Made)
def start(
    request: Request,
    wanted: shapes.Wanted,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> Response:
    """As `POST /runs`."""
    return submitted(request.app.state, wanted, key, user)


@router.post("/start", status_code=201, response_model=shapes.Made)
def start_phase(
    request: Request, wanted: shapes.Phase, key: str | None = KEY, user: User = Depends(SUBMITTER)
) -> Response:
    """The same, the phase named in the body. Phase 2, evomerge, is the one that there is."""
    plain = shapes.Wanted(**wanted.model_dump(exclude={"phase"}))
    return submitted(request.app.state, plain, key, user)


def _newest(request: Request, run: str | None) -> str:
    desk = desk_of(request)
    if run is not None:
        return desk.name(run)
    rows, _ = listing.page(desk.store, 1)
    if not rows:
        raise NotFoundError("there are no runs yet.")
    return rows[0]["run"]


@router.get("/evomerge/status", dependencies=[Depends(VIEWER)])
def status(request: Request, run: str | None = RUN) -> dict[str, Any]:
    """How far a run is."""
    desk = desk_of(request)
    with desk.state(_newest(request, run)) as state:
        told = views.progress(state)
    told.pop("type")
    return told


@router.get("/status", dependencies=[Depends(VIEWER)])
def phases(request: Request) -> dict[str, Any]:
    """The newest run of every phase that there is."""
    rows, _ = listing.page(desk_of(request).store, 1)
    found = status(request, rows[0]["run"]) if rows else None
    return {"phases": {"evomerge": found}}


@router.get(
    "/evomerge/results", dependencies=[Depends(VIEWER)],
    responses={409: {"model": shapes.Problem, "description": "The run has not completed."}},
)  # fmt: skip
def results(request: Request, run: str | None = RUN) -> Response:
    """What a completed run found: the `metrics` of the source documents, and the report."""
    desk = desk_of(request)
    name = _newest(request, run)
    with desk.state(name) as state:
        if state.completed is None:
            from evomerge.errors import ConflictError

            raise ConflictError(f"run {name} is {state.status}: there is no result.")
        rows = list(log.history(desk.store, name))
        body = report.report(state, rows)
    return JSONResponse({"success": True, **body})
