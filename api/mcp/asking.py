"""Tools that ask for something: a run to start, a run to pause. The user is the event's actor."""

from __future__ import annotations

from typing import Any

from pydantic import create_model

from api.mcp import answers, inputs
from api.mcp.tool import Call, Tool
from api.routes import commands, control
from api.schemas import bodies as schemas
from runs.kinds.controls import Control
from runs.lists import queries


async def check_run(call: Call, asked: inputs.Wanted) -> schemas.Checked:
    """Check settings, models and data of a run as a start would; nothing is started."""
    return schemas.Checked(**await commands.checked(call.state, asked, call.user))


async def start_run(call: Call, asked: inputs.Started) -> answers.Started:
    """Submit a run of any kind; a worker carries it on, and it may take minutes to days.

    `check_run` finds mistakes first, `follow_run` tells how far the run is. Give a `key`, so that a
    second call with the same input starts no second run.
    """
    wanted = schemas.Wanted(**asked.model_dump(exclude={"key"}))
    run, fresh, warnings = await commands.recorded(call.state, wanted, asked.key, call.user)
    name = queries.name(call.desk.store, run)
    return answers.Started(run=run, name=name, fresh=fresh, warnings=warnings)


def tool_of(asked: Control) -> Tool:
    """Return the tool that asks a run for something."""
    fields: Any = {"run": (inputs.RunName, ...), "key": (inputs.Key | None, None)}
    body = schemas.BODIES[asked.word]

    def do(call: Call, asked_for: Any) -> schemas.Asked:
        value, reason = getattr(asked_for, asked.value, None), getattr(asked_for, "reason", None)
        return control.ask(
            call.desk, asked_for.run, call.user, asked.word, value, reason, asked_for.key
        )

    do.__name__, do.__doc__ = asked.tool_name, f"{asked.line}\n\n{asked.more}"
    do.__annotations__["asked"] = create_model(asked.tool_name, __base__=body, **fields)
    effects = {"destroys": asked.destroys, "idempotent": asked.idempotent}
    return Tool(do, "submitter", reads=False, **effects)
