"""Tools that read kinds, runs, events and models: each calls what a route calls, and bounds it."""

from __future__ import annotations

import asyncio
import json

from agent_forge.api.mcp import inputs, tool
from agent_forge.api.mcp.tool import McpCall
from agent_forge.api.problems import HttpError
from agent_forge.api.routes import listings, runs
from agent_forge.api.schemas import listings as schemas
from agent_forge.api.schemas.runs import Activity, Json
from agent_forge.api.state import children as heads
from agent_forge.runs.lists import family, model_registry, queries
from agent_forge.runs.panels import thinning
from agent_forge.runs.record.events import ENDED

#: Points of a series and rows of a table that `show_panel` gives.
POINTS, ROWS = 200, 100
#: Characters of one event's data, and of all data on a page of events.
EVENT, PAGE = 20_000, 100_000
#: Ancestors of a model that an answer has room for.
ANCESTORS = 200
#: Seconds between two looks at a run that is followed.
LOOK = 0.5


def list_kinds(call: McpCall, request: inputs.Nothing) -> schemas.Kinds:
    """List the kinds of run that can be started, and what each takes beside its settings."""
    return schemas.Kinds(**listings.listed_kinds())


def show_settings(call: McpCall, request: inputs.KindInput) -> schemas.Settings:
    """Return the settings of a kind of run: JSON Schema, defaults, strategies."""
    return schemas.Settings(**listings.settings_of(request.kind))


def list_runs(call: McpCall, request: inputs.Runs) -> tool.Runs:
    """List runs, the newest first, filtered by state, kind, owner, label or text."""
    chosen = request.model_dump(exclude={"limit", "before"})
    page = runs.page_of_runs(call.desk, request.limit, request.before, **chosen)
    rows = [{name: row[name] for name in tool.RunRow.model_fields} for row in page["runs"]]
    after = None if page["next"] is None else int(page["next"])
    return tool.Runs.model_validate({"runs": rows, "total": page["total"], "next": after})


def show_run(call: McpCall, request: inputs.Run) -> tool.RunSummary:
    """Return the head of a run (state, result, facts, what it does now) and the list of its panels.

    The panels hold what the run has measured: `show_panel` gives the data of one.
    """
    overview = runs.overview(call.desk, request.run, request.at)
    lines = [
        tool.PanelLine(name=p.name, kind=p.kind, title=p.title, says=p.says) for p in overview.panels
    ]
    name = queries.name(call.desk.store, overview.head.run)
    return tool.RunSummary(name=name, head=overview.head, panels=lines)


def show_panel(call: McpCall, request: inputs.PanelInput) -> tool.Panel:
    """Return the data of one panel of a run; long series and tables are thinned.

    A series has at most 200 points, its extremes among them; a table has its newest 100 rows.
    """
    panel = runs.panel_of(call.desk, request.run, request.panel, request.at)
    thin = thinning.thin(panel, POINTS, ROWS)
    return tool.Panel(panel=thin.model_dump(mode="json"))


async def follow_run(call: McpCall, request: inputs.FollowInput) -> Activity:
    """Return what a run does now: tasks under way, share done, time left, or what it waits for.

    With `wait_seconds`, wait for the next event of the run, or its end, and report progress meanwhile.
    """
    seats = call.state.seats
    if why := seats.why_none(call.user.name):
        raise HttpError(503, "Service Unavailable", why)
    seats.take(call.user.name)
    try:
        return Activity(**await _followed(call, request))
    finally:
        seats.give_back(call.user.name)


async def _followed(call: McpCall, request: inputs.FollowInput) -> Json:
    """Return the run's activity, as `children.head` has it, once it has news or the time is up."""
    clock = asyncio.get_running_loop().time
    name = await asyncio.to_thread(call.desk.name, request.run)
    head = await asyncio.to_thread(heads.head, call.desk, name)
    place = head["place"] if request.place is None else request.place
    began = clock()
    while head["place"] <= place and head["status"] not in ENDED:
        left = began + request.wait_seconds - clock()
        if left <= 0:
            break
        await asyncio.sleep(min(LOOK, left))
        head = await asyncio.to_thread(heads.head, call.desk, name)
        await call.report(clock() - began, request.wait_seconds, _words(head))
    return head


def _words(activity: dict[str, object]) -> str:
    """Return a run's activity in a few words: "training base, 40% done"."""
    share = "" if activity["inside"] is None else f", {activity['inside']:.0%} done"
    waits = f"waits for {activity['waits_for']}" if activity["waits_for"] else activity["status"]
    return f"{activity['doing'] or waits}{share}"


def read_events(call: McpCall, request: inputs.History) -> tool.Events:
    """Return a page of a run's history: who did what, and when; with `data`, all that was recorded.

    A page has at most 100,000 characters of data and goes on at `next`. Data of more than 20,000
    characters is left out.
    """
    page = runs.page_of_events(call.desk, request.run, request.after, request.before, request.limit)
    events: list[tool.Event] = []
    room = PAGE
    for row in page["events"]:
        event = _event(row, request.data)
        room -= event.characters if event.data is not None else 0
        if events and room < 0:
            break
        events.append(event)
    whole = len(events) == len(page["events"])
    after = page["next"] if whole else events[-1].place
    return tool.Events(events=events, total=page["total"], next=after)


def _event(row: Json, with_data: bool) -> tool.Event:
    """Return an event for a tool's answer, with its data if it is wanted and not too large."""
    size = len(json.dumps(row["data"], ensure_ascii=False))
    content = row["data"] if with_data and size <= EVENT else None
    names = ("place", "type", "actor", "recorded_at", "gist")
    return tool.Event(**{name: row[name] for name in names}, data=content, characters=size)


def compare_runs(call: McpCall, request: inputs.Pair) -> tool.Compared:
    """Compare two runs of any kinds: if their results compare, both heads, settings that differ."""
    whole = runs.compared(call.desk, [request.run, request.other])
    heads = tuple(head.model_dump(mode="json") for head in whole.heads)
    names = dict(whole.names)
    return tool.Compared(names=names, heads=heads, judgements=whole.judgements, settings=whole.settings)


def list_models(call: McpCall, request: inputs.Models) -> schemas.ModelList:
    """List the models that runs read or made, and the registered models, the newest first."""
    rows, total = model_registry.listed(call.desk.store, request.kind, request.text, request.limit)
    return schemas.ModelList.model_validate({"models": rows, "total": total})


def explain_model(call: McpCall, request: inputs.Model) -> tool.AncestorList:
    """Explain where a model came from: its ancestors, run by run, to given models or first weights."""
    store = call.desk.store
    runs = listings.in_words(store, family.named(store, request.model))["runs"]
    room, groups = ANCESTORS, []
    for group in runs:
        ancestors = group["ancestors"][:room]
        room -= len(ancestors)
        if ancestors:
            groups.append(schemas.OneRun(**{**group, "ancestors": ancestors}))
    total = sum(len(group["ancestors"]) for group in runs)
    left_out = total - (ANCESTORS - room)
    return tool.AncestorList(runs=groups, ancestors=total, left_out=left_out)
