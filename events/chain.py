"""The hash chain: tamper evidence over every field of every row of a stream.

    hash_0 = 64 zeros
    hash_n = SHA-256(canonical JSON of row n without `position` and `hash`, `prev_hash` included)

`position` is left out because it belongs to one database, and a stream must keep its chain when it
is moved to another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from events.envelope import Envelope, canonical_json

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


Kind = Literal["changed", "missing", "swapped", "unlinked", "misplaced"]


@dataclass(frozen=True)
class Break:
    """A place where a stream is not what its hashes say."""

    kind: Kind
    #: The version of the event that is wrong, or of the first that is missing.
    version: int
    message: str


def link(row: Mapping[str, Any]) -> str:
    """The hash of a row, as 64 hexadecimal digits."""
    covered = {name: row[name] for name in COVERED}
    return hashlib.sha256(canonical_json(covered).encode()).hexdigest()


def check(rows: Sequence[Envelope]) -> list[Break]:
    """Where the rows of one stream, in the order of their versions from the first on, break the chain.

    Finds changed, removed, swapped and inserted rows. Rows cut off at the end leave a whole chain
    behind: only a head that was noted elsewhere tells (see `missing_tail`).
    """
    broken = {row.version: row for row in rows if link(row._asdict()) != row.hash}
    found = [_altered(row, broken) for row in broken.values()]
    version, head, position = 0, GENESIS, 0
    for row in rows:
        gap = row.version - version - 1
        if gap > 0:
            what = f"{_span(version + 1, row.version - 1)} missing from stream {row.stream}"
            found.append(Break("missing", version + 1, what))
        elif row.prev_hash != head and not {row.version, version} & broken.keys():
            what = (
                f"event {row.version} of stream {row.stream} does not follow on the one before it"
            )
            found.append(Break("unlinked", row.version, what))
        if row.position < position:
            what = f"event {row.version} of stream {row.stream} stands before event {version}"
            found.append(Break("misplaced", row.version, f"{what} in the log"))
        version, head, position = row.version, row.hash, row.position
    return sorted(found, key=lambda b: b.version)


def _altered(row: Envelope, broken: Mapping[int, Envelope]) -> Break:
    """What happened to a row that its hash does not fit."""
    for other in broken:
        if other != row.version and link({**row._asdict(), "version": other}) == row.hash:
            what = f"events {row.version} and {other} of stream {row.stream} were swapped"
            return Break("swapped", row.version, what)
    what = f"event {row.version} ({row.type}) of stream {row.stream} was changed: its hash does not fit"
    return Break("changed", row.version, what)


def missing_tail(rows: Sequence[Envelope], version: int, head: str, noted_in: str) -> Break | None:
    """Whether an event that was noted elsewhere is no longer there, or is another."""
    stream = rows[0].stream if rows else "(empty)"
    if len(rows) < version:
        gone = f"{_span(len(rows) + 1, version)} gone from the end of stream {stream}"
        return Break("missing", len(rows) + 1, f"{gone}: {noted_in} has the last one's hash")
    if rows[version - 1].hash != head:
        what = f"event {version} of stream {stream} is not the one that {noted_in} has the hash of"
        return Break("changed", version, what)
    return None


def _span(first: int, last: int) -> str:
    return f"event {first} is" if first == last else f"events {first} to {last} are"
