"""Controls of a run: pause, resume, cancel, retry, describe, priority; each an event with an actor."""

from __future__ import annotations

import hashlib
import uuid
from contextlib import suppress
from typing import Any

from agent_forge.events import Cause, ConcurrencyError, Event, EventStore, New
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConflictError
from agent_forge.runs.history import repository
from agent_forge.runs.history.run_cache import RunCache
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.controls import control_of, refusal
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import queries
from agent_forge.runs.lists.finding import full_name
from agent_forge.runs.record.events import (
    Cancelled,
    Described,
    Imported,
    Paused,
    PriorityChanged,
    Resumed,
)
from agent_forge.runs.system.plain_text import check
from agent_forge.worker.append import actor, project
from agent_forge.worker.commands import delegation, leftovers, submit
from agent_forge.worker.commands.submit import check_queued


def control(
    store: EventStore, run: str, event: Event, by: str | None = None, key: str | None = None
) -> State:
    """Record an event that a user asks for; return the run's state before the event.

    The user is `by`, or the user of this process. The same `key` from the same user is recorded
    once. Raises ConflictError, NotFoundError.
    """
    if isinstance(event, PriorityChanged):
        check_queued(event.priority)
    check(getattr(event, "reason", None) or "", "the reason")
    run = full_name(store, run)
    if isinstance(event, Described):
        submit.check_words(store, run, event)
    who = by or actor()
    last = uuid.uuid4().hex if key is None else hashlib.sha256(f"{who}/{key}".encode()).hexdigest()
    name = f"{run}/{event.type}/{last}"
    runs = RunCache(store, 1)
    while True:
        state = runs.get(run)
        if key is not None and _asked(store, state, name, event):
            return state
        if state.head in repository.heads(store):
            _take_over(store, state, who)
            continue
        why = refusal(state, event)
        if why is not None:
            _pass_down(store, state, event, who)  # a kill may have left its children out
            name = queries.name(store, run)
            raise ConflictError(f"run {name} was not changed: {why}. `forge show {name}` says more.")
        try:
            store.append(state.stream, state.version, [New(event, name)], Cause(actor=who))
        except ConcurrencyError:
            continue  # another process appended meanwhile: check again that the event is allowed
        project(store)
        _pass_down(store, state, event, who)
        return state


def ask(
    store: EventStore,
    home: Home,
    run: str,
    word: str,
    value: Any = None,
    reason: str | None = None,
    by: str | None = None,
    key: str | None = None,
) -> State:
    """Record what a user asks of a run by a word (`runs.kinds.controls`); return the state before.

    The same `key` from the same user is recorded once. Snapshots of a cancelled run are removed. Raises
    ConflictError, NotFoundError, ConfigError.
    """
    event = control_of(word).asking(value, reason)
    if event is not None:
        before = control(store, run, event, by, key)
        if isinstance(event, Cancelled):
            leftovers.cancelled(store, home, before)
        return before
    before = RunCache(store, 1).get(full_name(store, run))
    for event in kinds.of(before.kind).actions.act(before, word, value, reason):
        control(store, before.run, event, by, None if key is None else f"{key}/{event.type}")
    return before


def adopted(store: EventStore, run: str) -> State:
    """Return the state of a run that a user continues; take it over if it was only a fork's past.

    The run is given by its name or id. Raises NotFoundError.
    """
    state = RunCache(store, 1).get(full_name(store, run))
    if state.head not in repository.heads(store):
        return state
    control(store, state.run, Resumed())
    return RunCache(store, 1).get(state.run)


#: Events that are recorded for a run's children too.
_PASSED_DOWN = (Paused, Resumed, Cancelled, PriorityChanged)


def _pass_down(store: EventStore, state: State, event: Event, who: str) -> None:
    """Record the same event for the runs that are tasks of this one, if they allow it."""
    if isinstance(event, _PASSED_DOWN):
        for child in delegation.living(store, state):
            with suppress(ConflictError):
                control(store, child, event, who)


def _take_over(store: EventStore, state: State, who: str) -> None:
    """Record that a user now owns a run that was imported only as the past of a fork."""
    taken = New(Imported(owner=who, head=state.head), f"{state.run}/imported/{state.head}")
    with suppress(ConcurrencyError):
        store.append(state.stream, state.version, [taken], Cause(actor=who))


def _asked(store: EventStore, state: State, name: str, event: Event) -> bool:
    """Return True if this event is recorded already under the key `name`.

    Raises ConflictError if `name` (and so the user's key) was used for another event.
    """
    for row in store.iterate(state.stream):
        if row.key == name:
            if state.registry.load(row) != event:
                raise ConflictError(
                    f"the key has asked run {state.run} for something else: use another."
                )
            return True
    return False
