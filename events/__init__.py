"""The log. It knows nothing of models, merging or queues.

envelope.py   Event (what happened) and Envelope (how it was recorded); canonical JSON
registry.py   event type and schema version → class; upcasters for old rows
chain.py      the hash that ties each row of a stream to the one before
store.py      EventStore: append with optimistic concurrency and idempotency keys, read, tail
sqlite.py     what is particular to SQLite: pragmas, transactions, append-only triggers
errors.py     what can go wrong
"""

from events.envelope import Context, Envelope, Event, canonical_json
from events.errors import (
    ConcurrencyError,
    EventsError,
    IdempotencyError,
    PayloadError,
    StoreUnavailableError,
    UnknownEventError,
)
from events.registry import Registry
from events.store import Appended, EventStore, New

__all__ = [
    "Appended",
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
    "StoreUnavailableError",
    "UnknownEventError",
    "canonical_json",
]
