"""Pause, resume, cancel, retry, change the priority of a run: events with an actor."""

from __future__ import annotations

import hashlib
import uuid

from events import ConcurrencyError, Context, Event, EventStore, New
from evomerge.control import refusal
from evomerge.errors import ConflictError
from evomerge.facts import REGISTRY, PriorityChanged
from evomerge.log import full_name, load, news, stream
from evomerge.state import RunState, absorb
from worker.submission import actor, check_queued, project


def control(
    store: EventStore, run: str, event: Event, by: str | None = None, key: str | None = None
) -> RunState:
    """Append what a user (`by`, or whose process this is) asks of a run; the state before it.

    The same `key` from the same user asks once. Raises ConflictError, NotFoundError.
    """
    if isinstance(event, PriorityChanged):
        check_queued(event.priority)
    run = full_name(store, run)
    who = by or actor()
    last = uuid.uuid4().hex if key is None else hashlib.sha256(f"{who}/{key}".encode()).hexdigest()
    name = f"{run}/{event.type}/{last}"
    state = load(store, run)
    while True:
        absorb(state, news(store, run, state))
        if key is not None and _asked(store, run, name, event):
            return state
        why = refusal(state, event)
        if why is not None:
            raise ConflictError(f"run {run} is left as it is: {why}. `forge show {run}` says more.")
        try:
            store.append(stream(run), state.version, [New(event, name)], Context(actor=who))
        except ConcurrencyError:
            continue  # somebody appended in between: look again whether it still makes sense
        project(store)
        return state


def _asked(store: EventStore, run: str, name: str, event: Event) -> bool:
    """Whether this was asked for before. Raises ConflictError where the key asked for another thing."""
    for row in store.iterate(stream(run)):
        if row.key == name:
            if REGISTRY.load(row) != event:
                raise ConflictError(f"the key has asked run {run} for something else: use another.")
            return True
    return False
