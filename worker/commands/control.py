"""Pause, resume, cancel, retry a run or change its priority: events with an actor."""

from __future__ import annotations

import hashlib
import uuid
from contextlib import suppress

from events import ConcurrencyError, Context, Event, EventStore, New
from runs import imported_pasts
from runs.errors import ConflictError
from runs.history.repository import full_name
from runs.history.run_cache import RunCache
from runs.kinds.commands import refusal
from runs.kinds.state import State
from runs.kinds.user_events import Imported, PriorityChanged
from runs.system.plain_text import check
from worker.append import actor, project
from worker.commands.submit import check_queued


def control(
    store: EventStore, run: str, event: Event, by: str | None = None, key: str | None = None
) -> State:
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
    runs = RunCache(store, 1)
    while True:
        state = runs.get(run)
        if key is not None and _asked(store, state, name, event):
            return state
        if state.head in imported_pasts.heads(store):
            _take_over(store, state, who)
            continue
        why = refusal(state, event)
        if why is not None:
            raise ConflictError(f"run {run} is left as it is: {why}. `forge show {run}` says more.")
        try:
            store.append(state.stream, state.version, [New(event, name)], Context(actor=who))
        except ConcurrencyError:
            continue  # another process appended meanwhile: check again that the event is allowed
        project(store)
        return state


def _take_over(store: EventStore, state: State, who: str) -> None:
    """Record that a run imported only as the past of a fork is now the user's own run."""
    taken = New(Imported(owner=who, head=state.head), f"{state.run}/imported/{state.head}")
    with suppress(ConcurrencyError):
        store.append(state.stream, state.version, [taken], Context(actor=who))


def _asked(store: EventStore, state: State, name: str, event: Event) -> bool:
    """Return True if this event is recorded already under this name.

    Raises ConflictError if the name (and so the user's key) was used for another event.
    """
    for row in store.iterate(state.stream):
        if row.key == name:
            if state.registry.load(row) != event:
                raise ConflictError(
                    f"the key has asked run {state.run} for something else: use another."
                )
            return True
    return False
