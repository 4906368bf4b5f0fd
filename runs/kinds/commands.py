"""Commands of users to a run: pause, resume, cancel, retry, change priority, import, export.

Pure. Each command is an event with an actor. `refusal` says why a command makes no sense in a
state; it is called before the event is recorded, and again by an audit.
"""

from __future__ import annotations

from events import Event
from runs import kinds
from runs.kinds.retries import attempts, deaths
from runs.kinds.state import State
from runs.record import user_events


def refusal(state: State, event: Event) -> str | None:
    """Return why the run refuses this event in its present state; None if the run accepts it."""
    match event:
        case user_events.Wish() if type(event) not in user_events.WISHES:
            return kinds.of(state.kind).refuses(state, event)
        case user_events.Retried():
            return _no_retry(state)
        case user_events.Imported():
            return _no_import(state, event)
        case user_events.Described():
            return None
        case user_events.Exported():
            return None if state.completed else _no_result(state)
        case user_events.Cancelled() if kinds.of(state.kind).decision(state) is not None:
            return None  # the user gives it up
        case _ if state.ended:
            return ended(state)
        case user_events.Paused() if state.paused:
            return "it is paused already"
        case user_events.Resumed() if not state.paused:
            return "it is not paused"
    return None


def _no_result(state: State) -> str:
    """Return why there is nothing to export yet."""
    result = kinds.of(state.kind).result_name
    if state.ended:
        return f"{ended(state)} and has no {result}"
    return f"it is {state.status} and has no {result} yet"


def ended(state: State) -> str:
    """Return how a run has ended."""
    return "it is cancelled" if state.cancelled else f"it has {state.status}"


def _no_import(state: State, event: user_events.Imported) -> str | None:
    if state.completed or state.cancelled:
        return ended(state)
    return None if event.head == state.head else "its last event is another than was imported"


def _no_retry(state: State) -> str | None:
    if state.failed and not state.cancelled:
        return None
    if state.ended:
        return ended(state)
    failed = [t for t in state.failures if attempts(state, t)]
    died = [t for t in state.deaths if deaths(state, t)]
    return None if failed or died or state.quarantined else "nothing of it has failed"
