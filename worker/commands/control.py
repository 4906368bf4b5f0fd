"""Pause, resume, cancel, retry a run or change its priority: events with an actor."""

from __future__ import annotations

import hashlib
import uuid
from contextlib import suppress

from events import ConcurrencyError, Context, Event, EventStore, New
from evomerge.run.commands import refusal
from evomerge.run.events import REGISTRY, Imported, PriorityChanged
from evomerge.run.repository import full_name, load, news, stream
from evomerge.run.state import RunState, absorb
from runs import imported_pasts
from runs.errors import ConflictError
from runs.system.plain_text import check
from worker.append import actor, project
from worker.commands.submit import check_queued


def control(
    store: EventStore, run: str, event: Event, by: str | None = None, key: str | None = None
) -> RunState:
    """Append the event that a user asks for; return the run's state before the event.

    The user is `by`, or the user of this process. The same `key` from the same user is recorded
    once. Raises ConflictError, NotFoundError.
    """
    if isinstance(event, PriorityChanged):
        check_queued(event.priority)
    check(getattr(event, "reason", None) or "", "the reason")
    run = full_name(store, run)
    who = by or actor()
    last = uuid.uuid4().hex if key is None else hashlib.sha256(f"{who}/{key}".encode()).hexdigest()
    name = f"{run}/{event.type}/{last}"
    state = load(store, run)
    while True:
        absorb(state, news(store, run, state))
        if key is not None and _asked(store, run, name, event):
            return state
        if state.head in imported_pasts.heads(store):
            _take_over(store, state, who)
            continue
        why = refusal(state, event)
        if why is not None:
            raise ConflictError(f"run {run} is left as it is: {why}. `forge show {run}` says more.")
        try:
            store.append(stream(run), state.version, [New(event, name)], Context(actor=who))
        except ConcurrencyError:
            continue  # another process appended meanwhile: check again that the event is allowed
        project(store)
        return state


def _take_over(store: EventStore, state: RunState, who: str) -> None:
    """Record that a run imported only as the past of a fork is now the user's own run."""
    taken = New(Imported(owner=who, head=state.head), f"{state.run}/imported/{state.head}")
    with suppress(ConcurrencyError):
        store.append(stream(state.run), state.version, [taken], Context(actor=who))


def _asked(store: EventStore, run: str, name: str, event: Event) -> bool:
    """Return True if this event is recorded already under this name.

    Raises ConflictError if the name (and so the user's key) was used for another event.
    """
    for row in store.iterate(stream(run)):
        if row.key == name:
            if REGISTRY.load(row) != event:
                raise ConflictError(f"the key has asked run {run} for something else: use another.")
            return True
    return False
