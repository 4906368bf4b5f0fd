"""Routes that read what is shown of a run of any kind: its head and its panels."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Depends, Path, Request, Response

from api.access.authorization import VIEWER
from api.routes.runs import AT, desk_of, tagged
from api.state import head as heads
from api.state.run_cache import Desk
from runs import kinds
from runs.lists import queries
from runs.panels import tables, thinning
from runs.panels.head import Panels
from runs.panels.panels import Panel

router = APIRouter(dependencies=[Depends(VIEWER)], tags=["runs"])

NAME = Path(max_length=64, description="The panel's name.")


@router.get("/runs/{run}/panels", response_model=Panels)
def panels(request: Request, run: str, at: int | None = AT) -> Response:
    """Return head and panels of a run of any kind; long lines are thinned. `now` has no past."""
    desk = desk_of(request)
    name = desk.name(run)
    whole, newest = _overview(desk, name, at)
    now = heads.live(desk, name) if newest else None
    head = whole.head.model_copy(update={"now": now})
    thin = tuple(map(thinning.thin, whole.panels))
    return tagged(request, Panels(head=head, panels=thin).model_dump(mode="json"))


@router.get("/runs/{run}/panels/{name}.json", response_model=Panel)
def panel_json(request: Request, run: str, name: str = NAME, at: int | None = AT) -> Response:
    """Return one panel with all of its data."""
    return tagged(request, _panel(request, run, name, at).model_dump(mode="json"))


@router.get(
    "/runs/{run}/panels/{name}.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def panel_csv(request: Request, run: str, name: str = NAME, at: int | None = AT) -> Response:
    """Return all data of one panel as CSV."""
    text = tables.to_csv(_panel(request, run, name, at))
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def _panel(request: Request, run: str, name: str, at: int | None) -> Any:
    desk = desk_of(request)
    full = desk.name(run)
    return tables.find(_overview(desk, full, at)[0].panels, name, full)


def _overview(desk: Desk, run: str, at: int | None) -> tuple[Panels, bool]:
    """Return head and panels, and True if they are those of the newest event."""
    with desk.state(run) as state:
        if at in (None, state.place):
            return desk.seen(run, "panels", state, lambda state: _seen(desk, state)), True
    with desk.state(run, at) as state:
        return _seen(desk, state), False


def _seen(desk: Desk, state: Any) -> Panels:
    row = queries.row(desk.store, state.run)
    return kinds.of(state.kind).overview(state, json.loads(row["curve"]) if row else ())
