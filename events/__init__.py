"""The append-only, hash-chained log, which knows nothing of models, merging or queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from events.envelope import Context, Envelope, Event, canonical_json
from events.errors import (
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
from events.registry import Registry

if TYPE_CHECKING:
    from events.store import Appended, EventStore, New

__all__ = [
    "Appended",
    "ArchiveError",
    "ChainError",
    "ConcurrencyError",
    "Context",
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


def __getattr__(name: str) -> Any:
    """Import the store on first use: the store needs a database library, which merging does not."""
    if name in ("Appended", "EventStore", "New"):
        from events import store

        return getattr(store, name)
    raise AttributeError(f"module 'events' has no attribute {name!r}")
