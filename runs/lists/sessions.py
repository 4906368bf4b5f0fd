"""Sessions: work that is grouped by a script of a user's own, with its progress and its models.

The source documents' registry has sessions. Their events are in one stream, `sessions`, and fold to
the sessions. Pure, but for `found` and `every`, which read the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import Field

from agent_forge.events import Event, EventStore, Registry
from agent_forge.runs.errors import NotFoundError

REGISTRY = Registry()

STREAM = "sessions"


@REGISTRY.event
class SessionCreated(Event):
    """A session was begun."""

    type = "session_created"

    session: str
    #: What the script says of it, in plain values.
    config: dict[str, object]


@REGISTRY.event
class SessionProgressed(Event):
    """A script said how far a phase of its session is."""

    type = "session_progressed"

    session: str
    phase: str
    percent: float = Field(ge=0, le=100)


@REGISTRY.event
class SessionModelAdded(Event):
    """A registered model was said to be of a session."""

    type = "session_model_added"

    session: str
    #: The model's id in the registry.
    model: str


@dataclass
class Session:
    """A session, as its events say."""

    name: str
    config: dict[str, object]
    owner: str
    created_at: str
    updated_at: str
    #: Phase → percent, in the order in which phases were first told of.
    progress: dict[str, float] = field(default_factory=dict[str, float])
    #: Ids of models, the first registered first.
    models: list[str] = field(default_factory=list[str])


def every(store: EventStore) -> dict[str, Session]:
    """Return name → session, the oldest first."""
    sessions: dict[str, Session] = {}
    for row in store.iterate(STREAM):
        event = REGISTRY.load(row)
        if isinstance(event, SessionCreated):
            at = row.recorded_at
            sessions[event.session] = Session(event.session, event.config, row.actor, at, at)
        elif (session := sessions.get(getattr(event, "session", ""))) is not None:
            _take(session, event)
            session.updated_at = row.recorded_at
    return sessions


def _take(session: Session, event: Event) -> None:
    if isinstance(event, SessionProgressed):
        session.progress[event.phase] = event.percent
    elif isinstance(event, SessionModelAdded) and event.model not in session.models:
        session.models.append(event.model)


def found(store: EventStore, name: str) -> Session:
    """Return a session by its name. Raises NotFoundError."""
    sessions = every(store)
    if name not in sessions:
        names = ", ".join(sessions) or "none"
        raise NotFoundError(f"session {name!r} is not known. There are: {names}.")
    return sessions[name]
