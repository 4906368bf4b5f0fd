"""The hash chain: tamper evidence over every field of every row of a stream.

    hash_0 = 64 zeros
    hash_n = SHA-256(canonical JSON of row n without `position` and `hash`, `prev_hash` included)

`position` is left out because it belongs to one database, and a stream must keep its chain when the
stream is moved to another database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_forge.events.envelope import Envelope, canonical_json

#: `prev_hash` of the first row of every stream.
GENESIS = "0" * 64

#: The fields that the hash covers.
COVERED = (
    *("stream", "version", "event_id"),
    *("type", "schema", "data", "key"),
    *("actor", "causation", "correlation"),
    *("recorded_at", "code_version", "prev_hash"),
)


Kind = Literal["changed", "missing", "swapped", "unlinked", "misplaced", "extra"]


@dataclass(frozen=True)
class Break:
    """A place where a stream does not agree with its hashes."""

    kind: Kind
    #: The version of the wrong event, or of the first missing event.
    version: int
    message: str


def link(row: Mapping[str, object]) -> str:
    """Return the hash of a row, as 64 hexadecimal digits."""
    covered = {name: row[name] for name in COVERED}
    return hashlib.sha256(canonical_json(covered).encode()).hexdigest()


def fits(row: Envelope) -> bool:
    """Return True if the row's hash is the hash of its fields; False also if a field is no text."""
    try:
        return link(row._asdict()) == row.hash
    except (TypeError, ValueError):  # bytes, or text that is no UTF-8
        return False


def follows(row: Envelope, version: int, head: str) -> bool:
    """Return True if the row fits its hash and follows directly on row `version` of hash `head`."""
    return row.version == version + 1 and row.prev_hash == head and fits(row)


def check(rows: Sequence[Envelope]) -> list[Break]:
    """Return the breaks in one stream's chain, by version; empty if it is whole.

    `rows` are in the order of their versions.

    Finds changed, removed, swapped and inserted rows, also rows before the first one. If the last rows
    were removed, the chain is still valid: only a head noted elsewhere reveals it (`missing_tail`).
    """
    broken = [row for row in rows if not fits(row)]
    wrong = {row.version for row in broken}
    breaks = [_altered(row, broken) for row in broken]
    version, head, position = 0, GENESIS, 0
    for row in rows:
        if not _is_number(row.version):
            continue  # its hash cannot fit, which is reported above
        gap = row.version - version - 1
        if gap > 0:
            what = f"{_span(version + 1, row.version - 1)} missing from stream {row.stream}"
            breaks.append(Break("missing", version + 1, what))
        elif gap < 0:
            where = "before the first" if row.version < 1 else "a second time"
            what = f"stream {row.stream} has an event {row.version} ({row.type}) {where}"
            breaks.append(Break("extra", row.version, f"{what}: it was inserted"))
            continue
        elif row.prev_hash != head and not {row.version, version} & wrong:
            what = f"event {row.version} of stream {row.stream} does not follow on the one before it"
            breaks.append(Break("unlinked", row.version, what))
        if row.position < position:
            what = f"event {row.version} of stream {row.stream} stands before event {version}"
            breaks.append(Break("misplaced", row.version, f"{what} in the log"))
        version, head, position = row.version, row.hash, row.position
    return sorted(breaks, key=lambda b: b.version)


def _altered(row: Envelope, broken: Sequence[Envelope]) -> Break:
    """Return the break of a row whose hash does not fit: swapped with another row, or changed."""
    if not _is_number(row.version):
        what = f"an event of stream {row.stream} was changed: its version is {row.version!r}"
        return Break("changed", 0, what)
    for other in broken:
        if other.version != row.version and fits(row._replace(version=other.version)):
            what = f"events {row.version} and {other.version} of stream {row.stream} were swapped"
            return Break("swapped", row.version, what)
    what = f"event {row.version} ({row.type}) of stream {row.stream} was changed: its hash does not fit"
    return Break("changed", row.version, what)


def missing_tail(rows: Sequence[Envelope], version: int, head: str, noted_in: str) -> Break | None:
    """Return the break if event `version` is missing or its hash is not `head`; None if all is well."""
    stream = rows[0].stream if rows else "(empty)"
    hashes = {row.version: row.hash for row in rows if _is_number(row.version)}
    last = max(hashes, default=0)
    if last < version:
        gone = f"{_span(last + 1, version)} gone from the end of stream {stream}"
        return Break("missing", last + 1, f"{gone}: {noted_in} has the last one's hash")
    if hashes.get(version) != head:
        what = f"event {version} of stream {stream} is not the one that {noted_in} has the hash of"
        return Break("changed", version, what)
    return None


def _is_number(version: object) -> bool:
    """Return True if a row's version is an integer; a damaged row may have text or bytes there."""
    return isinstance(version, int)


def _span(first: int, last: int) -> str:
    return f"event {first} is" if first == last else f"events {first} to {last} are"
