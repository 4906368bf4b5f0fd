"""Sessions of users: begun, and their progress and models recorded; each an event with an actor."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pydantic import ValidationError

from agent_forge.events import Cause, Event, EventStore, New, canonical_json
from agent_forge.runs.errors import ConfigError, ConflictError
from agent_forge.runs.lists import sessions
from agent_forge.runs.lists.sessions import (
    Session,
    SessionCreated,
    SessionModelAdded,
    SessionProgressed,
)
from agent_forge.runs.system import plain_text
from agent_forge.worker.append import actor


def create(
    store: EventStore, name: str, config: Mapping[str, object], by: str | None = None
) -> Session:
    """Record a new session, or find the one of this name and config; return the session.

    Raises ConfigError, and ConflictError if a session of this name has another config.
    """
    plain_text.check_name(name, "the session's name")
    if not 1 <= len(name) <= 200:
        raise ConfigError("a session's name has 1 to 200 characters.")
    try:
        whole = canonical_json(dict(config))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"session {name}: its config is no plain data: {error}") from error
    if name not in sessions.every(store):
        event = SessionCreated(session=name, config=dict(config))
        _append(store, event, f"created/{name}", by)  # of two at once, the first one is recorded
    session = sessions.found(store, name)
    if canonical_json(session.config) != whole:
        raise ConflictError(f"session {name} exists already, with another config.")
    return session


def progress(
    store: EventStore, name: str, phase: str, percent: float, by: str | None = None
) -> Session:
    """Record a phase's progress in percent; return the session. Raises ConfigError, NotFoundError."""
    sessions.found(store, name)
    plain_text.check_name(phase, "the phase's name")
    try:
        event = SessionProgressed(session=name, phase=phase, percent=percent)
    except ValidationError as error:
        raise ConfigError(f"session {name}: progress is 0 to 100 percent, not {percent}.") from error
    _append(store, event, uuid.uuid4().hex, by)
    return sessions.found(store, name)


def add_model(store: EventStore, name: str, model: str, by: str | None = None) -> Session:
    """Record that a registered model belongs to a session; return the session. Raises NotFoundError."""
    sessions.found(store, name)
    _append(store, SessionModelAdded(session=name, model=model), f"model/{name}/{model}", by)
    return sessions.found(store, name)


def _append(store: EventStore, event: Event, key: str, by: str | None) -> None:
    new = New(event, f"{sessions.STREAM}/{key}")
    store.append(sessions.STREAM, None, [new], Cause(actor=by or actor()))
