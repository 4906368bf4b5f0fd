"""Commands of users to a run: pause, resume, cancel, retry, change priority, import, export.

Pure. Each command is an event with an actor. `refusal` says why a command makes no sense in a
state; it is called before the event is recorded, and again by an audit.
"""

from __future__ import annotations

from events import Event
from evomerge.run import events
from evomerge.run.retries import attempts, deaths
from evomerge.run.state import RunState
from runs import user_events

#: The events that users append.
CONTROLS = user_events.WISHES


def refusal(state: RunState, event: Event) -> str | None:
    """Return why the run refuses this event in its present state; None if the run accepts it."""
    match event:
        case events.Retried():
            return _no_retry(state)
        case events.Imported():
            return _no_import(state, event)
        case events.Exported():
            return None if state.completed else f"it is {state.status}: there is no final champion"
        case _ if state.ended:
            return f"it is {state.status}"
        case events.Paused() if state.paused:
            return "it is paused already"
        case events.Resumed() if not state.paused:
            return "it is not paused"
    return None


def _no_import(state: RunState, event: events.Imported) -> str | None:
    if state.completed or state.cancelled:
        return f"it is {state.status}"
    return None if event.head == state.head else "its last event is another than was imported"


def _no_retry(state: RunState) -> str | None:
    if state.failed and not state.cancelled:
        return None
    if state.ended:
        return f"it is {state.status}"
    failed = [t for t in state.failures if attempts(state, t)]
    died = [t for t in state.deaths if deaths(state, t)]
    return None if failed or died or state.quarantined else "nothing of it has failed"
