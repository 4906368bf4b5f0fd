"""The log. It knows nothing of models, merging or queues.

envelope.py   Event (what happened) and Envelope (how it was recorded); canonical JSON
registry.py   event type and schema version → class; upcasters for old rows
chain.py      the hash that ties each row of a stream to the one before
store.py      EventStore: append with optimistic concurrency and idempotency keys, read, tail
database.py   transactions and errors; sqlite.py and postgres.py: what differs between the two
schema.py     the tables' versions; migrations/: alembic's revisions
turnstile.py  writers of one SQLite file take turns
errors.py     what can go wrong
"""

from events.envelope import Context, Envelope, Event, canonical_json
from events.errors import (
    ChainError,
    ConcurrencyError,
    EventsError,
    IdempotencyError,
    PayloadError,
    SchemaError,
    StoreUnavailableError,
    UnknownEventError,
    UnstorableError,
)
from events.registry import Registry
from events.store import Appended, EventStore, New

__all__ = [
    "Appended",
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
    "Registry",
    "SchemaError",
    "StoreUnavailableError",
    "UnknownEventError",
    "UnstorableError",
    "canonical_json",
]
