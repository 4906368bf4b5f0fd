"""MCP resources: the reports of completed runs, as Markdown and as JSON; and the table of MCP tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
from pydantic import create_model

from agent_forge.api.mcp import inputs, reading, tool
from agent_forge.api.mcp.tool import McpCall, McpTool, as_json
from agent_forge.api.problems import HttpError
from agent_forge.api.routes import commands, control
from agent_forge.api.routes.phases import completed
from agent_forge.api.routes.runs import page_of_runs
from agent_forge.api.schemas import bodies as schemas
from agent_forge.api.state.run_cache import RunReader
from agent_forge.runs import kinds
from agent_forge.runs.kinds.controls import CONTROLS, Control
from agent_forge.runs.lists import queries
from agent_forge.runs.system import plain_text

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


async def check_run(call: McpCall, request: inputs.NewRun) -> schemas.Checked:
    """Check settings, models and data of a run as a start would; nothing is started."""
    return schemas.Checked(**await commands.checked(call.state, request, call.user))


async def start_run(call: McpCall, request: inputs.Started) -> tool.Started:
    """Submit a run of any kind; a worker carries it on, and it may take minutes to days.

    `check_run` finds mistakes first, `follow_run` tells how far the run is. Give a `key`, so that a
    second call with the same input starts no second run.
    """
    body = schemas.Wanted(**request.model_dump(exclude={"key"}))
    run, fresh, warnings = await commands.recorded(call.state, body, request.key, call.user)
    name = queries.name(call.desk.store, run)
    return tool.Started(run=run, name=name, fresh=fresh, warnings=warnings)


def tool_of(command: Control) -> McpTool:
    """Return the tool by which a user gives a run this command, such as pause."""
    fields: Any = {"run": (inputs.RunName, ...), "key": (inputs.Key | None, None)}
    body = schemas.BODIES[command.word]

    def do(call: McpCall, asked_for: Any) -> schemas.Asked:
        value, reason = getattr(asked_for, command.value, None), getattr(asked_for, "reason", None)
        return control.ask(
            call.desk, asked_for.run, call.user, command.word, value, reason, asked_for.key
        )

    do.__name__, do.__doc__ = command.tool_name, f"{command.line}\n\n{command.more}"
    do.__annotations__["request"] = create_model(command.tool_name, __base__=body, **fields)
    effects = {"destroys": command.destroys, "idempotent": command.idempotent}
    return McpTool(do, "submitter", reads=False, **effects)


TOOLS = (
    McpTool(reading.list_kinds),
    McpTool(reading.show_settings),
    McpTool(check_run, "submitter", outside=True),
    McpTool(start_run, "submitter", reads=False, idempotent=False, outside=True),
    McpTool(reading.list_runs),
    McpTool(reading.show_run),
    McpTool(reading.show_panel),
    McpTool(reading.follow_run),
    McpTool(reading.read_events),
    McpTool(reading.compare_runs),
    *map(tool_of, CONTROLS.values()),
    McpTool(reading.list_models),
    McpTool(reading.explain_model),
)

BY_NAME = {tool.name: tool for tool in TOOLS}
