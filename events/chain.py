"""The hash chain: tamper evidence over every field of every row of a stream.

    hash_0 = 64 zeros
    hash_n = SHA-256(canonical JSON of row n without `position` and `hash`, `prev_hash` included)

`position` is left out because it belongs to one database, and a stream must keep its chain when it
is moved to another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from events.envelope import canonical_json

#: `prev_hash` of the first row of every stream.
GENESIS = "0" * 64

#: The fields that the hash covers.
COVERED = (
    "stream",
    "version",
    "event_id",
    "type",
    "schema",
    "data",
    "key",
    "actor",
    "causation",
    "correlation",
    "recorded_at",
    "code_version",
    "prev_hash",
)


def link(row: Mapping[str, Any]) -> str:
    """The hash of a row, as 64 hexadecimal digits."""
    covered = {name: row[name] for name in COVERED}
    return hashlib.sha256(canonical_json(covered).encode()).hexdigest()
