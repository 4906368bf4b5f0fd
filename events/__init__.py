"""The log. It knows nothing of models, merging or queues.

envelope.py   Event (what happened) and Envelope (how it was recorded); canonical JSON
registry.py   event type and schema version → class; upcasters for old rows
chain.py      the hash that ties each row of a stream to the one before
store.py      EventStore: append with optimistic concurrency and idempotency keys, read, tail
database.py   transactions and errors; sqlite.py and postgres.py: what differs between the two
projection.py tables that follow the log
archive.py    logs out to and in from one file
schema.py     the tables' versions; migrations/: alembic's revisions
turnstile.py  writers of one SQLite file take turns
errors.py     what can go wrong
"""

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
    """The store, when it is asked for: with it comes a database library, which merging needs not."""
    if name in ("Appended", "EventStore", "New"):
        from events import store

        return getattr(store, name)
    raise AttributeError(f"module 'events' has no attribute {name!r}")
