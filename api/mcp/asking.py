"""MCP tools that check, start, pause and otherwise change runs. The user is the event's actor."""

from __future__ import annotations

from typing import Any

from pydantic import create_model

from agent_forge.api.mcp import inputs, tool
from agent_forge.api.mcp.tool import McpCall, McpTool
from agent_forge.api.routes import commands, control
from agent_forge.api.schemas import bodies as schemas
from agent_forge.runs.kinds.controls import Control
from agent_forge.runs.lists import queries


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
