"""Routes that read what is shown of a run of any kind: its head and its panels."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from api.access.authorization import VIEWER, User
from api.routes.runs import AT, UPTO, desk_of, tagged
from api.state import children
from api.state import head as heads
from api.state.run_cache import Desk
from runs import kinds
from runs.lists import queries
from runs.panels import markdown, report_html, tables, thinning
from runs.panels.head import Panels
from runs.panels.panels import Panel
from runs.panels.side_by_side import Seen, SideBySide, side_by_side

router = APIRouter(dependencies=[Depends(VIEWER)], tags=["runs"])

FROM = Query(None, alias="from", allow_inf_nan=False, description="Lines from this place of x on.")
TO = Query(None, alias="to", allow_inf_nan=False, description="Lines up to this place of x.")
NAME = Path(max_length=64, description="The panel's name.")


@router.get("/runs/{run}/panels", response_model=Panels)
def panels(request: Request, run: str, at: int | None = AT, upto: int | None = UPTO) -> Response:
    """Return head and panels of a run of any kind; long lines are thinned. `now` has no past."""
    whole = overview(desk_of(request), run, at, upto)
    thin = tuple(map(thinning.thin, whole.panels))
    return tagged(request, Panels(head=whole.head, panels=thin).model_dump(mode="json"))


@router.get(
    "/runs/{run}/panels.md",
    response_class=Response,
    responses={200: {"content": {"text/markdown": {"schema": {"type": "string"}}}}},
)
def panels_markdown(
    request: Request, run: str, at: int | None = AT, upto: int | None = UPTO
) -> Response:
    """Return head and panels of a run of any kind as Markdown; long lines and tables are thinned."""
    text = markdown.markdown(overview(desk_of(request), run, at, upto))
    return Response(text, media_type="text/markdown; charset=utf-8")


@router.get(
    "/runs/{run}/report.md",
    response_class=Response,
    responses={200: {"content": {"text/markdown": {"schema": {"type": "string"}}}}},
)
def report_markdown(request: Request, run: str) -> Response:
    """Return the report of a run of any kind for people as Markdown: what is known so far."""
    name, text = _report(desk_of(request), run)
    headers = {"Content-Disposition": f'inline; filename="{name}.md"'}
    return Response(text, media_type="text/markdown; charset=utf-8", headers=headers)


@router.get(
    "/runs/{run}/report.html",
    response_class=Response,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
async def report_page(request: Request, run: str, user: User = Depends(VIEWER)) -> Response:
    """Return the same report as one HTML file, with contents and picture, without scripts."""
    desk = desk_of(request)
    name, text = await asyncio.to_thread(_report, desk, run)
    drawn = await asyncio.to_thread(children.pictured, desk, run)
    ask = request.app.state.readers.ask
    file = (await ask("draw_report", user.name, **drawn))["file"] if drawn else None
    headers = {
        "Content-Disposition": f'inline; filename="{name}.html"',
        "Content-Security-Policy": f"{report_html.POLICY}; sandbox",
    }
    picture = base64.b64decode(file) if file else None
    page = await asyncio.to_thread(report_html.page, text, f"Run {name}", picture)
    return Response(page, media_type="text/html; charset=utf-8", headers=headers)


def _report(desk: Desk, run: str) -> tuple[str, str]:
    """Return (what a run is called, its report as Markdown). Raises NotFoundError."""
    id_ = desk.name(run)
    name = queries.name(desk.store, id_)
    return name, markdown.called(children.report(desk, id_), id_, name)


def overview(desk: Desk, run: str, at: int | None, upto: int | None = None) -> Panels:
    """Return head and panels, with all of their data and what the run does now."""
    name = desk.name(run)
    whole, newest = children.overview(desk, name, at, upto)
    now = heads.live(desk, name) if newest else None
    return Panels(head=whole.head.model_copy(update={"now": now}), panels=whole.panels)


@router.get("/compare", response_model=SideBySide)
def compare(
    request: Request,
    runs: str = Query(max_length=2000, description="Two runs or more, with commas between them."),
) -> Response:
    """Return runs of any kinds side by side: if their results compare, what differs, their panels."""
    names = [name for name in runs.split(",") if name]
    return tagged(request, compared(desk_of(request), names).model_dump(mode="json"))


def compared(desk: Desk, runs: list[str]) -> SideBySide:
    """Return runs side by side, their panels thinned. Raises NotFoundError, ConfigError."""
    views: list[Seen] = []
    undecided: list[str] = []
    for name in dict.fromkeys(map(desk.name, runs)):
        whole, _ = children.overview(desk, name, None, None)
        thin = Panels(head=whole.head, panels=tuple(map(thinning.thin, whole.panels)))
        with desk.state(name) as state:
            kind = kinds.of(state.kind)
            views.append(kind.seen_beside(state, thin))
            if kind.decision(state) is not None:
                undecided.append(name)
    names = queries.names(desk.store, [run.head.run for run in views])
    update = {"names": names, "undecided": tuple(undecided)}
    return side_by_side(views).model_copy(update=update)


@router.get("/runs/{run}/panels/{name}.json", response_model=Panel)
def panel_json(
    request: Request,
    run: str,
    name: str = NAME,
    at: int | None = AT,
    upto: int | None = UPTO,
    begin: float | None = FROM,
    end: float | None = TO,
) -> Response:
    """Return one panel with all of its data; or lines between two places, thinned there."""
    panel = panel_of(desk_of(request), run, name, at, upto)
    if begin is not None or end is not None:
        panel = thinning.within(panel, begin, end)
    return tagged(request, panel.model_dump(mode="json"))


@router.get(
    "/runs/{run}/panels/{name}.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def panel_csv(
    request: Request, run: str, name: str = NAME, at: int | None = AT, upto: int | None = UPTO
) -> Response:
    """Return all data of one panel as CSV."""
    text = tables.to_csv(panel_of(desk_of(request), run, name, at, upto))
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


#: Form of a picture → its media type.
PICTURES = {"svg": "image/svg+xml", "png": "image/png"}
_FILE = {"schema": {"type": "string", "format": "binary"}}


@router.get(
    "/runs/{run}/panels/{name}.{form}",
    response_class=Response,
    responses={200: {"content": dict.fromkeys(PICTURES.values(), _FILE)}},
)
async def panel_picture(
    request: Request,
    run: str,
    form: Literal["svg", "png"],
    name: str = NAME,
    at: int | None = AT,
    upto: int | None = UPTO,
    user: User = Depends(VIEWER),
) -> Response:
    """Return one panel as a picture, as `forge show` draws it; long lines are thinned.

    A process beside the server draws it. Raises Problem 503.
    """
    panel = await asyncio.to_thread(panel_of, desk_of(request), run, name, at, upto)
    dump = thinning.thin(panel).model_dump(mode="json")
    picture = await request.app.state.readers.ask("draw", user.name, panel=dump, form=form)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{form}"'}
    return Response(base64.b64decode(picture["file"]), media_type=PICTURES[form], headers=headers)


def panel_of(desk: Desk, run: str, name: str, at: int | None, upto: int | None = None) -> Any:
    """Return one panel with all of its data. Raises NotFoundError."""
    full = desk.name(run)
    return tables.find(children.overview(desk, full, at, upto)[0].panels, name, full)
