"""Pause, resume, cancel, retry, change the priority of a run: events with an actor."""

from __future__ import annotations

import uuid

from events import ConcurrencyError, Context, Event, EventStore, New
from evomerge.control import refusal
from evomerge.errors import ConflictError
from evomerge.facts import PriorityChanged
from evomerge.log import full_name, load, stream
from evomerge.state import RunState
from worker.advance import actor, check_queued, project


def control(store: EventStore, run: str, event: Event, by: str | None = None) -> RunState:
    """Append what a user (`by`, or whose process this is) asks of a run; the state before it.

    Raises ConflictError, NotFoundError.
    """
    if isinstance(event, PriorityChanged):
        check_queued(event.priority)
    run = full_name(store, run)
    while True:
        state = load(store, run)
        why = refusal(state, event)
        if why is not None:
            raise ConflictError(f"run {run} is left as it is: {why}. `forge show {run}` says more.")
        new = New(event, f"{run}/{event.type}/{uuid.uuid4().hex}")
        try:
            store.append(stream(run), state.version, [new], Context(actor=by or actor()))
        except ConcurrencyError:
            continue  # somebody appended in between: look again whether it still makes sense
        project(store)
        return state
