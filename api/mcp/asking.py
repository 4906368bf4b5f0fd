"""Tools that ask for something: a run to start, a run to pause. The user is the event's actor."""

from __future__ import annotations

from typing import Any

from api.mcp import answers, inputs
from api.mcp.tool import Call
from api.routes import commands, control
from api.schemas import bodies as schemas
from events import Event
from runs.lists import queries
from runs.record import user_events as events

#: The action by which a pipeline goes on behind a gate.
OVERRIDE = "override"


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


def pause_run(call: Call, asked: inputs.Asked) -> schemas.Asked:
    """Pause a run; tasks under way are finished."""
    return _ask(call, asked, events.Paused(reason=asked.reason))


def resume_run(call: Call, asked: inputs.Asked) -> schemas.Asked:
    """Resume a paused run."""
    return _ask(call, asked, events.Resumed(reason=asked.reason))


def cancel_run(call: Call, asked: inputs.Asked) -> schemas.Asked:
    """End a run for good. Its results stay in the log."""
    return _ask(call, asked, events.Cancelled(reason=asked.reason))


def retry_run(call: Call, asked: inputs.Asked) -> schemas.Asked:
    """Forget a run's failed attempts, so that they are made again; also after the run has failed."""
    return _ask(call, asked, events.Retried(reason=asked.reason))


def override_gate(call: Call, asked: inputs.Overridden) -> schemas.Asked:
    """Let a pipeline go on although the gate of a phase has stopped it. The reason is recorded."""
    body = schemas.Act(about=asked.phase, reason=asked.reason)
    told: dict[str, Any] = control.ask_action(
        call.desk, asked.run, call.user, OVERRIDE, body, asked.key
    )
    return schemas.Asked(**told)


def _ask(call: Call, asked: inputs.Asked, event: Event) -> schemas.Asked:
    return schemas.Asked(**control.ask(call.desk, asked.run, call.user, event, asked.key))
