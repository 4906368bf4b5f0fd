"""Routes that read runs: the run list, events, reports, comparisons, and a run's head and panels."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from typing import Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from agent_forge.api.access.authorization import VIEWER, User
from agent_forge.api.problems import HttpError
from agent_forge.api.schemas import bodies as schemas
from agent_forge.api.schemas.runs import Json
from agent_forge.api.state import children, run_cache
from agent_forge.api.state import children as heads
from agent_forge.api.state.run_cache import RunReader
from agent_forge.runs import kinds
from agent_forge.runs.kinds import view, wording
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import queries, stages
from agent_forge.runs.panels import report_html, tables, thinning
from agent_forge.runs.panels.head import Panels
from agent_forge.runs.panels.panels import Panel
from agent_forge.runs.panels.side_by_side import ComparedRun, SideBySide, side_by_side

router = APIRouter(dependencies=[Depends(VIEWER)], tags=["runs"])

AT = Query(None, ge=1, description="As it was after this event of its history.")
UPTO = Query(None, ge=1, lt=1 << 62, description="As it was at this position of the log.")
CANDIDATE = Query("champion", max_length=64, description='An id, the beginning of one, or "champion".')


def desk_of(request: Request) -> RunReader:
    """Return the server's RunReader: its log and its cache of folded runs."""
    return request.app.state.desk


def tagged(request: Request, body: object) -> Response:
    """Return `body` as JSON with its entity tag, or 304 if the client has it (RFC 9110, 13.1.2)."""
    answer = JSONResponse(body)
    quoted = f'"{hashlib.sha256(answer.body).hexdigest()[:32]}"'
    headers = {"ETag": quoted, "Cache-Control": "private, no-cache"}
    tags = [t.strip().removeprefix("W/") for t in request.headers.get("if-none-match", "").split(",")]
    if quoted in tags or tags == ["*"]:
        return Response(status_code=304, headers=headers)
    answer.headers.update(headers)
    return answer


def told(row: Json) -> Json:
    """Return a row of the run list as answers have it: lists for labels, tags, curve; no internals."""
    hidden = ("first", "started", "paused", "ended", "profile", "head", "first_id", "reason")
    hidden += ("stages", "quality", "bytes", "key")
    plain = {k: v for k, v in row.items() if k not in hidden}
    plain["undecided"] = stages.stopped(row) is not None
    lists = {name: row[name].split() for name in ("labels", "tags")}
    return {**plain, **lists, "curve": json.loads(row["curve"])}


#: Columns that the list can be sorted by: `queries.SORTS`.
Sort = Literal["run", "kind", "status", "owner", "value", "done", "device_seconds", "updated_at"]


@router.get("/runs", response_model=schemas.Rows)
def runs(
    request: Request,
    status: Literal["submitted", "running", "paused", "completed", "failed", "cancelled"] | None = None,
    owner: str | None = Query(None, max_length=64),
    label: str | None = Query(None, max_length=100),
    tag: str | None = Query(None, max_length=100),
    q: str = Query("", max_length=200, description="Part of a name, a note, an owner or a label."),
    parts: bool = Query(True, description="Whether runs that other runs have asked for are wanted."),
    limit: int = Query(50, ge=1, le=500),
    before: int | None = Query(None, ge=0, lt=1 << 62, description="`next` of the page before."),
    kind: str | None = Query(None, max_length=64, description="See `GET /kinds`."),
    sort: Sort | None = Query(None, description="Default: the newest first."),
    order: Literal["up", "down"] = "down",
) -> Response:
    """List the runs, the newest first or sorted by a column."""
    chosen = {"status": status, "owner": owner, "label": label, "text": q, "kind": kind}
    chosen |= {"tag": tag, "parts": parts}
    order_ = {"sort": sort, "descending": order == "down"}
    return tagged(request, page_of_runs(desk_of(request), limit, before, **chosen, **order_))


def page_of_runs(desk: RunReader, limit: int, before: int | None, **chosen: Any) -> Json:
    """Return {runs, total, next}, a page of the run list; `chosen`: arguments of `queries.page`."""
    page = queries.page(desk.store, limit + 1, before, **chosen)
    rows, total = page[0][:limit], page[1]
    in_order = chosen.get("sort") is not None
    place = (before or 0) + limit if in_order else rows[-1]["first"] if rows else None
    more = str(place) if len(page[0]) > limit else None
    return {"runs": [told(row) for row in rows], "total": total, "next": more}


@router.get("/runs/{run}/asked", response_model=schemas.Again)
def asked(request: Request, run: str) -> Response:
    """Return what the run was asked for, as `POST /runs` takes it, without defaults."""
    desk = desk_of(request)
    with desk.state(desk.name(run)) as state:
        kind = kinds.of(state.kind)
        again = kind.requests.again(state.submitted)
        models = {role: list(names) for role, names in again.models.items() if role != "base"}
        further = set(models) - {kind.main_role}
        file = kind.requests.written(again.config)
        body = {
            "kind": again.kind,
            "models": models if further else models.get(kind.main_role, []),
            "base": next(iter(again.models.get("base", ())), None),
            "data": list(again.data),
            "config": dict(again.config) if file is None else {},
            "file": file,
            "priority": state.submitted.priority,
            "labels": list(state.submitted.labels),
            "quarantine": state.submitted.quarantine,
        }
    return tagged(request, body)


@router.get("/runs/{run}", response_model=schemas.Run | schemas.RunFacts)
def run(request: Request, run: str, at: int | None = AT, upto: int | None = UPTO) -> Response:
    """Return a run as it is now, as it was after some of its events, or at a moment of the log."""
    desk = desk_of(request)
    name = desk.name(run)
    at, part = desk.place(name, at, upto), children.part_of(desk, name)
    with desk.state(name) as state:
        delegates = kinds.of(state.kind).children is not None
        more = {"places": state.place, "part_of": part, "delegates": delegates}
        row = queries.row(desk.store, name)
        if row is not None:
            more |= {"submitted_at": row["submitted_at"], "updated_at": row["updated_at"]}
        more |= _words(row, name)
        if at in (None, state.place):
            body = desk.seen(name, "run", state, run_cache.run)
            return tagged(request, {**_with_origin(desk, body), **more})
    with desk.state(name, at) as state:
        body = run_cache.run(state)
    (_, last), *_ = desk.events(name, body["place"] - 1, None, 1)[0]
    # Of a past place nothing can be asked but a fork; its newest event is the one of that place.
    past = {"updated_at": last.recorded_at, "allowed": ["fork"]}
    return tagged(request, {**_with_origin(desk, body), **more, **past})


def _with_origin(desk: RunReader, body: Json) -> Json:
    """Return a run's answer, with the name of the run that it was forked from if it is a fork."""
    origin = body["forked_from"]
    if origin is None:
        return body
    return {**body, "forked_from": {**origin, "run_name": queries.name(desk.store, origin["run"])}}


def _words(row: Json | None, run: str) -> Json:
    """Return {name, note, tags, key} of a run by its row of the run list; blanks without a row."""
    if row is None:
        return {"name": run, "note": "", "tags": [], "key": None}
    return {**{word: row[word] for word in ("name", "note", "key")}, "tags": row["tags"].split()}


@router.get("/runs/{run}/head", response_model=schemas.Activity)
def head(request: Request, run: str) -> Json:
    """Return what a run does now: tasks under way, share done, time left. Past events have none."""
    desk = desk_of(request)
    return heads.head(desk, desk.name(run))


@router.get("/runs/{run}/events", response_model=schemas.Events)
def events(
    request: Request,
    run: str,
    after: int = Query(0, ge=0, lt=1 << 62),
    before: int | None = Query(None, ge=1, lt=1 << 62, description="Backwards from here."),
    limit: int = Query(200, ge=1, le=1000),
    data: bool = Query(True, description="Whether the events' data is wanted; it may be large."),
) -> Response:
    """List the events of a run; a fork's include those before it was forked."""
    body = page_of_events(desk_of(request), run, after, before, limit)
    if not data:
        body["events"] = [{**row, "data": {}} for row in body["events"]]
    return JSONResponse(body)


def page_of_events(desk: RunReader, run: str, after: int, before: int | None, limit: int) -> Json:
    """Return {events, total, next}, a part of a run's history as `RunReader.events` cuts it."""
    name = desk.name(run)
    with desk.state(name) as state:
        names = wording.names(state)
    event_rows, total = desk.events(name, after, before, limit)
    rows = [run_cache.event(row, place, names) for place, row in event_rows]
    last = rows[-1]["place"] if rows else None
    done = last is None or (last >= total if before is None else last <= 1)
    return {"events": rows, "total": total, "next": None if done else last}


@router.get("/runs/{run}/moments", response_model=schemas.Moments)
def moments(
    request: Request,
    run: str,
    after: int = Query(0, ge=0, lt=1 << 62, description="A position in the log."),
    limit: int = Query(200, ge=1, le=1000),
) -> Response:
    """List the events of a run and of the runs that it delegates, in the order of the log."""
    desk = desk_of(request)
    event_rows, total = children.moments(desk, desk.name(run), after, limit + 1)
    rows = event_rows[:limit]
    more = rows[-1]["position"] if len(event_rows) > limit else None
    return JSONResponse({"moments": rows, "total": total, "next": more})


@router.get("/runs/{run}/population", response_model=schemas.Population)
def population(
    request: Request,
    run: str,
    at: int | None = AT,
    generation: str | None = Query(None, pattern=r"^(all|\d{1,6})$", description='Or "all".'),
) -> Response:
    """List the candidates of one generation (default: the newest), or of all."""
    desk = desk_of(request)
    name = desk.name(run)
    number = None if generation in (None, "all") else int(generation)
    with desk.state(name, at) as state:
        options = {"generation": number, "everything": generation == "all"}
        return tagged(request, _part(state, "population", **options))


def _part(state: State, name: str, **options: object) -> Json:
    """Return the data of the part `name` of a run's page, by its kind. Raises NotFoundError."""
    return kinds.of(state.kind).view.part(state, name, **options)


@router.get("/runs/{run}/candidates/{candidate}", response_model=schemas.Candidate)
def candidate(request: Request, run: str, candidate: str, at: int | None = AT) -> Response:
    """Return one candidate, with its recipe as a config for `forge merge` if a config can say it."""
    desk = desk_of(request)
    with desk.state(desk.name(run), at) as state:
        return tagged(request, _part(state, "candidate", candidate=candidate))


@router.get("/runs/{run}/lineage", response_model=schemas.Lineage)
def lineage(request: Request, run: str, candidate: str = CANDIDATE, at: int | None = AT) -> Response:
    """Return the ancestors and the siblings of a candidate."""
    desk = desk_of(request)
    with desk.state(desk.name(run), at) as state:
        return tagged(request, _part(state, "lineage", candidate=candidate))


@router.get(
    "/runs/{run}/layers",
    response_model=schemas.Layers,
    responses={202: {"model": schemas.Layers, "description": "It is being worked out."}},
)
async def layers(
    request: Request, run: str, candidate: str = CANDIDATE, at: int | None = AT
) -> Response:
    """Return each source's share of each layer, computed once from the weights, in another process."""
    desk = desk_of(request)

    def look() -> tuple[str, str, Json | None, list[str]]:
        name = desk.name(run)
        with desk.state(name, at) as state:
            if state.started is None:
                raise HttpError(409, "Conflict", f"run {name} has not started.")
            kind = kinds.of(state.kind)
            recipe = kind.models.find(state, candidate)
            return recipe, *kind.view.layers(desk.home, state, recipe)

    recipe_id, key, layer_shares, command = await asyncio.to_thread(look)
    if layer_shares is not None:
        return tagged(request, {"status": "ready", **layer_shares})
    work = request.app.state.work
    await work.begin(f"layers {key}", command, by=request.state.user.name)
    failed = work.failed(f"layers {key}")
    if failed is not None:
        raise HttpError(503, "Service Unavailable", f"The layers cannot be worked out: {failed}")
    return JSONResponse({"status": "working", "candidate": recipe_id}, 202)


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
    text = tables.markdown(overview(desk_of(request), run, at, upto))
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


def _report(desk: RunReader, run: str) -> tuple[str, str]:
    """Return (name of a run, its report as Markdown). Raises NotFoundError."""
    id_ = desk.name(run)
    name = queries.name(desk.store, id_)
    return name, tables.called(children.report(desk, id_), id_, name)


def overview(desk: RunReader, run: str, at: int | None, upto: int | None = None) -> Panels:
    """Return the Panels of a run, not thinned; `now` in the head only if the moment is the present."""
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


def compared(desk: RunReader, runs: list[str]) -> SideBySide:
    """Return the comparison of the runs, their panels thinned. Raises NotFoundError, ConfigError."""
    views: list[ComparedRun] = []
    undecided: list[str] = []
    for name in dict.fromkeys(map(desk.name, runs)):
        whole, _ = children.overview(desk, name, None, None)
        thin = Panels(head=whole.head, panels=tuple(map(thinning.thin, whole.panels)))
        with desk.state(name) as state:
            views.append(view.compared(state, thin))
            if kinds.of(state.kind).actions.decision(state) is not None:
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


def panel_of(desk: RunReader, run: str, name: str, at: int | None, upto: int | None = None) -> Any:
    """Return one panel with all of its data. Raises NotFoundError."""
    full = desk.name(run)
    return tables.find(children.overview(desk, full, at, upto)[0].panels, name, full)
