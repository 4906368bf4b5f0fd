"""Tools that read kinds, runs, events and models: each calls what a route calls, and bounds it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from api.mcp import answers, inputs
from api.mcp.tool import Call
from api.problems import Problem
from api.routes import listings, panels, runs
from api.schemas import listings as schemas
from api.schemas.activity import Activity
from api.state import head as heads
from runs.lists import family, model_registry, queries
from runs.panels import thinning
from runs.record.events import ENDED

#: Points of a series and rows of a table that `show_panel` gives.
POINTS, ROWS = 200, 100
#: Characters of one event's data, and of all data on a page of events.
EVENT, PAGE = 20_000, 100_000
#: Ancestors of a model that an answer has room for.
ANCESTORS = 200
#: Seconds between two looks at a run that is followed.
LOOK = 0.5


def list_kinds(call: Call, asked: inputs.Nothing) -> schemas.Kinds:
    """List the kinds of run that can be started, and what each takes beside its settings."""
    return schemas.Kinds(**listings.listed_kinds())


def show_settings(call: Call, asked: inputs.OfKind) -> schemas.Settings:
    """Return the settings of a kind of run: JSON Schema, defaults, strategies."""
    return schemas.Settings(**listings.settings_of(asked.kind))


def list_runs(call: Call, asked: inputs.Runs) -> answers.Runs:
    """List runs, the newest first, filtered by state, kind, owner, label or text."""
    chosen = asked.model_dump(exclude={"limit", "before"})
    found = runs.page_of_runs(call.desk, asked.limit, asked.before, **chosen)
    rows = [{name: row[name] for name in answers.RunRow.model_fields} for row in found["runs"]]
    after = None if found["next"] is None else int(found["next"])
    return answers.Runs.model_validate({"runs": rows, "total": found["total"], "next": after})


def show_run(call: Call, asked: inputs.Run) -> answers.Shown:
    """Return the head of a run (state, result, facts, what it does now) and the list of its panels.

    The panels hold what the run has measured: `show_panel` gives the data of one.
    """
    seen = panels.overview(call.desk, asked.run, asked.at)
    lines = [
        answers.PanelLine(name=p.name, kind=p.kind, title=p.title, says=p.says) for p in seen.panels
    ]
    name = queries.name(call.desk.store, seen.head.run)
    return answers.Shown(name=name, head=seen.head, panels=lines)


def show_panel(call: Call, asked: inputs.OfPanel) -> answers.Panel:
    """Return the data of one panel of a run; long series and tables are thinned.

    A series has at most 200 points, its extremes among them; a table has its newest 100 rows.
    """
    panel = panels.panel_of(call.desk, asked.run, asked.panel, asked.at)
    thin = thinning.thin(panel, POINTS, ROWS)
    return answers.Panel(panel=thin.model_dump(mode="json"))


async def follow_run(call: Call, asked: inputs.Following) -> Activity:
    """Return what a run does now: tasks under way, share done, time left, or what it waits for.

    With `wait_seconds`, wait for the next event of the run, or its end, and report progress meanwhile.
    """
    seats = call.state.seats
    if why := seats.why_none(call.user.name):
        raise Problem(503, "Service Unavailable", why)
    seats.take(call.user.name)
    try:
        return Activity(**await _followed(call, asked))
    finally:
        seats.give_back(call.user.name)


async def _followed(call: Call, asked: inputs.Following) -> dict[str, Any]:
    """Return the run's activity once it has news, or the time is up."""
    clock = asyncio.get_running_loop().time
    name = await asyncio.to_thread(call.desk.name, asked.run)
    told = await asyncio.to_thread(heads.head, call.desk, name)
    place = told["place"] if asked.place is None else asked.place
    began = clock()
    while told["place"] <= place and told["status"] not in ENDED:
        left = began + asked.wait_seconds - clock()
        if left <= 0:
            break
        await asyncio.sleep(min(LOOK, left))
        told = await asyncio.to_thread(heads.head, call.desk, name)
        await call.report(clock() - began, asked.wait_seconds, _words(told))
    return told


def _words(told: dict[str, Any]) -> str:
    """Return a run's activity in a few words."""
    share = "" if told["inside"] is None else f", {told['inside']:.0%} done"
    waits = f"waits for {told['waits_for']}" if told["waits_for"] else told["status"]
    return f"{told['doing'] or waits}{share}"


def read_events(call: Call, asked: inputs.History) -> answers.Events:
    """Return a page of a run's history: who did what, and when; with `data`, all that was recorded.

    A page has at most 100,000 characters of data and goes on at `next`. Data of more than 20,000
    characters is left out.
    """
    page = runs.page_of_events(call.desk, asked.run, asked.after, asked.before, asked.limit)
    told: list[answers.Event] = []
    room = PAGE
    for row in page["events"]:
        event = _event(row, asked.data)
        room -= event.characters if event.data is not None else 0
        if told and room < 0:
            break
        told.append(event)
    whole = len(told) == len(page["events"])
    after = page["next"] if whole else told[-1].place
    return answers.Events(events=told, total=page["total"], next=after)


def _event(row: dict[str, Any], with_data: bool) -> answers.Event:
    """Return an event; its data if it is wanted and not too large."""
    size = len(json.dumps(row["data"], ensure_ascii=False))
    given = row["data"] if with_data and size <= EVENT else None
    names = ("place", "type", "actor", "recorded_at", "gist")
    return answers.Event(**{name: row[name] for name in names}, data=given, characters=size)


def compare_runs(call: Call, asked: inputs.Pair) -> answers.Compared:
    """Compare two runs of any kinds: if their results compare, both heads, settings that differ."""
    whole = panels.compared(call.desk, [asked.run, asked.other])
    heads = tuple(head.model_dump(mode="json") for head in whole.heads)
    names = dict(whole.names)
    return answers.Compared(
        names=names, heads=heads, judgements=whole.judgements, settings=whole.settings
    )


def list_models(call: Call, asked: inputs.Models) -> schemas.ModelList:
    """List the models that runs read or made, and the registered models, the newest first."""
    rows, total = model_registry.listed(call.desk.store, asked.kind, asked.text, asked.limit)
    return schemas.ModelList.model_validate({"models": rows, "total": total})


def explain_model(call: Call, asked: inputs.Model) -> answers.Explained:
    """Explain where a model came from: its ancestors, run by run, to given models or first weights."""
    store = call.desk.store
    runs = listings.in_words(store, family.named(store, asked.model))["runs"]
    room, told = ANCESTORS, []
    for group in runs:
        kept = group["ancestors"][:room]
        room -= len(kept)
        if kept:
            told.append(schemas.OneRun(**{**group, "ancestors": kept}))
    total = sum(len(group["ancestors"]) for group in runs)
    left_out = total - (ANCESTORS - room)
    return answers.Explained(runs=told, ancestors=total, left_out=left_out)
