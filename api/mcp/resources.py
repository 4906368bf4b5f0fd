"""MCP: the tools that read, the table of all tools, and reports of completed runs as resources.

A tool calls what a route calls, and bounds it.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
from pydantic import create_model

from agent_forge.api.mcp import inputs, tool
from agent_forge.api.mcp.tool import McpCall, McpTool, as_json
from agent_forge.api.problems import HttpError
from agent_forge.api.routes import commands, control, listings, runs
from agent_forge.api.routes.phases import completed
from agent_forge.api.routes.runs import page_of_runs
from agent_forge.api.schemas import bodies
from agent_forge.api.schemas import listings as schemas
from agent_forge.api.schemas.runs import Activity, Json
from agent_forge.api.state import children as heads
from agent_forge.api.state.run_cache import RunReader
from agent_forge.runs import kinds
from agent_forge.runs.kinds.controls import CONTROLS, Control
from agent_forge.runs.lists import family, model_registry, queries
from agent_forge.runs.panels import thinning
from agent_forge.runs.record.events import ENDED
from agent_forge.runs.system import plain_text

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


#: Reports that are listed, the newest first, and characters of one.
LISTED, LARGEST = 50, 1_000_000


@dataclass(frozen=True)
class ReportForm:
    """A form of the report: the last part of its address, its media type, a line about it."""

    file: str
    media_type: str
    line: str

    @property
    def template(self) -> str:
        """The address with a place for the run's name."""
        return f"forge://runs/{{run}}/{self.file}"

    def of(self, run: str) -> str:
        """Return the address of a run's report."""
        return self.template.replace("{run}", quote(run, safe=""))


MARKDOWN = ReportForm("report.md", "text/markdown", "The report of a run that has completed.")
JSON = ReportForm(
    "report.json", "application/json", "The same as data: what `/phases/KIND/results` has."
)
FORMS = (MARKDOWN, JSON)

_ADDRESS = re.compile(r"forge://runs/([^/]+)/([^/]+)")


def templates() -> list[types.ResourceTemplate]:
    """Return a template of addresses for each form of a report."""
    return [
        types.ResourceTemplate(
            name=form.file, uri_template=form.template, mime_type=form.media_type, description=form.line
        )
        for form in FORMS
    ]


def listed(desk: RunReader) -> list[types.Resource]:
    """Return the reports of the newest completed runs as resources, one for each form."""
    rows = page_of_runs(desk, LISTED, None, status="completed")["runs"]
    return [
        types.Resource(
            name=f"{row['run']} {form.file}",
            uri=form.of(row["run"]),
            mime_type=form.media_type,
            description=plain_text.visible(f"{form.line} Kind: {row['kind']}. Of {row['owner']}."),
        )
        for row in rows
        for form in FORMS
    ]


def read(desk: RunReader, uri: str) -> types.TextResourceContents:
    """Return the report at an address as a text resource. Raises NotFoundError and others."""
    match = _ADDRESS.fullmatch(uri)
    form = next((entry for entry in FORMS if match and entry.file == match[2]), None)
    if match is None or form is None:
        addresses = " and ".join(entry.template for entry in FORMS)
        raise HttpError(404, "Not Found", f"There is no resource {uri[:200]!r}: there are {addresses}.")
    with completed(desk, desk.name(unquote(match[1]))) as (state, rows):
        kind = kinds.of(state.kind)
        if form is JSON:
            text = as_json(plain_text.for_reader(kind.view.report(state, rows)), LARGEST)
        else:
            text = plain_text.for_reader(kind.view.markdown(state, rows))
    return types.TextResourceContents(uri=uri, mime_type=form.media_type, text=text)


async def check_run(call: McpCall, request: inputs.NewRun) -> bodies.Checked:
    """Check settings, models and data of a run as a start would; nothing is started."""
    return bodies.Checked(**await commands.checked(call.state, request, call.user))


async def start_run(call: McpCall, request: inputs.Started) -> tool.Started:
    """Submit a run of any kind; a worker carries it on, and it may take minutes to days.

    `check_run` finds mistakes first, `follow_run` tells how far the run is. Give a `key`, so that a
    second call with the same input starts no second run.
    """
    body = bodies.Wanted(**request.model_dump(exclude={"key"}))
    run, fresh, warnings = await commands.recorded(call.state, body, request.key, call.user)
    name = queries.name(call.desk.store, run)
    return tool.Started(run=run, name=name, fresh=fresh, warnings=warnings)


def tool_of(command: Control) -> McpTool:
    """Return the tool by which a user gives a run this command, such as pause."""
    fields: Any = {"run": (inputs.RunName, ...), "key": (inputs.Key | None, None)}
    body = bodies.BODIES[command.word]

    def do(call: McpCall, asked_for: Any) -> bodies.Asked:
        value, reason = getattr(asked_for, command.value, None), getattr(asked_for, "reason", None)
        return control.ask(
            call.desk, asked_for.run, call.user, command.word, value, reason, asked_for.key
        )

    do.__name__, do.__doc__ = command.tool_name, f"{command.line}\n\n{command.more}"
    do.__annotations__["request"] = create_model(command.tool_name, __base__=body, **fields)
    effects = {"destroys": command.destroys, "idempotent": command.idempotent}
    return McpTool(do, "submitter", reads=False, **effects)


TOOLS = (
    McpTool(list_kinds),
    McpTool(show_settings),
    McpTool(check_run, "submitter", outside=True),
    McpTool(start_run, "submitter", reads=False, idempotent=False, outside=True),
    McpTool(list_runs),
    McpTool(show_run),
    McpTool(show_panel),
    McpTool(follow_run),
    McpTool(read_events),
    McpTool(compare_runs),
    *map(tool_of, CONTROLS.values()),
    McpTool(list_models),
    McpTool(explain_model),
)

BY_NAME = {tool.name: tool for tool in TOOLS}
