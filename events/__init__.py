"""The append-only, hash-chained log, which knows nothing of models, merging or queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_forge.events.envelope import Cause, Envelope, Event, canonical_json
from agent_forge.events.errors import (
    ArchiveError,
    ChainError,
    ConcurrencyError,
    EventsError,
    IdempotencyError,
    PayloadError,
    ProjectionError,
    SchemaError,
    StoreUnavailableError,
    UnknownEventError,
    UnstorableError,
)
from agent_forge.events.registry import Registry

if TYPE_CHECKING:
    from agent_forge.events.store import Appended, EventStore, New

__all__ = [
    "Appended",
    "ArchiveError",
    "Cause",
    "ChainError",
    "ConcurrencyError",
    "Envelope",
    "Event",
    "EventStore",
    "EventsError",
    "IdempotencyError",
    "New",
    "PayloadError",
    "ProjectionError",
    "Registry",
    "SchemaError",
    "StoreUnavailableError",
    "UnknownEventError",
    "UnstorableError",
    "canonical_json",
]


def __getattr__(name: str) -> object:
    """Return a class of `store`, imported on first use: only the store needs a database library."""
    if name in ("Appended", "EventStore", "New"):
        from agent_forge.events import store

        return getattr(store, name)
    raise AttributeError(f"module 'events' has no attribute {name!r}")
