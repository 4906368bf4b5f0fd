"""Event store: append to, read and tail one append-only table.

The store guarantees: versions of a stream are 1, 2, 3, … without gaps; an append is all or nothing
and durable when it returns; a key is recorded once. The store makes no callbacks: a reader sees new
events only by asking again. The SQL of appends is built once per kind of database and executed by its
driver, without SQLAlchemy. Threads that append at once share a commit (`database.GroupCommit`).
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from importlib import metadata
from typing import TypeVar

from sqlalchemy import BigInteger, Integer, func, select, text
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlmodel import Field, SQLModel, UniqueConstraint

from agent_forge.events import chain, failpoints
from agent_forge.events.database import RECONNECTS, Database, GroupCommit
from agent_forge.events.envelope import Cause, Envelope, Event, has_zero, storable
from agent_forge.events.errors import ChainError, ConcurrencyError, IdempotencyError, UnstorableError

Done = TypeVar("Done")
CODE_VERSION = f"agent-forge {metadata.version('agent-forge')}"

#: Rows read, or keys looked up, at a time: following a log takes the same memory, however long it is.
PAGE = 256


class EventRow(SQLModel, table=True):
    """The log's table. `Registry.load` validates its rows, as SQLModel table models do not."""

    __tablename__ = "events"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (UniqueConstraint("stream", "version"), {"sqlite_autoincrement": True})

    position: int | None = Field(
        default=None,
        primary_key=True,
        sa_type=BigInteger().with_variant(Integer(), "sqlite"),  # pyright: ignore[reportArgumentType]
    )
    stream: str
    version: int
    event_id: str = Field(unique=True)
    type: str
    schema_: int = Field(sa_column_kwargs={"name": "schema"})
    data: str
    key: str = Field(unique=True)
    actor: str
    causation: str | None
    correlation: str | None
    recorded_at: str
    code_version: str
    prev_hash: str
    hash: str


EVENTS = EventRow.metadata.tables["events"]


@dataclass(frozen=True)
class New:
    """An event to append and the key under which it can be recorded only once."""

    event: Event
    key: str


@dataclass(frozen=True)
class Appended:
    """The rows of one append in the log. `fresh` is False if an earlier append had recorded them."""

    rows: tuple[Envelope, ...]
    fresh: bool


#: An append that waits for its transaction: stream, expected version, drafts of rows.
_Append = tuple[str, int | None, Sequence[Envelope]]


class EventStore:
    """An append-only log in a database (of `events.databases`: SQLite or PostgreSQL)."""

    def __init__(self, database: Database, clock: Callable[[], datetime] | None = None) -> None:
        self.database = database
        self._clock = clock or (lambda: datetime.now(UTC))
        self._group = GroupCommit[_Append, Appended](
            lambda appends: self._transaction(partial(self._append_all, appends))
        )

    def append(
        self, stream: str, expected_version: int | None, events: Sequence[New], context: Cause = Cause()
    ) -> Appended:
        """Append all events or none; return an Appended: their rows, also if recorded earlier.

        `expected_version` is the version that the caller's decision was made at (0: the stream is
        new); None appends at any version. Events whose keys are already recorded in this stream
        are returned as recorded, at any version. The first event's cause is `context.causation`, the
        cause of the others is the first event: so readers know what was appended together.

        Raises ConcurrencyError, IdempotencyError, UnstorableError, StoreUnavailableError.
        """
        if twice := [key for key, n in Counter(new.key for new in events).items() if n > 1]:
            raise IdempotencyError(sorted(twice))
        drafts = _drafts(stream, events, context)
        try:
            return self._group.share((stream, expected_version, drafts))
        except IntegrityError as error:  # by a client that does not wait for its turn
            raise ConcurrencyError(stream, expected_version or 0, self.version(stream)) from error

    def _append_all(
        self, appends: Sequence[_Append], cursor: DBAPICursor
    ) -> Sequence[Appended | Exception]:
        """Make appends in one transaction; return the rows of each, or the error that refuses it."""
        keyed, ends = self._recorded(cursor, appends)
        parts = [self._place(append, keyed, ends) for append in appends]
        rows = [row[1:] for part in parts if isinstance(part, list) for row in part]
        if rows:
            failpoints.hit("append-began")
            positions = self.database.insert(cursor, insert_statement(self.database.mark), rows)
            added = [Envelope(at, *row) for at, row in zip(positions, rows, strict=True)]
            keyed |= {row.key: row for row in added}
            failpoints.hit("append-inserted")
        return [
            part
            if isinstance(part, Exception)
            else Appended(tuple(keyed[draft.key] for draft in drafts), fresh=part is not None)
            for (_, _, drafts), part in zip(appends, parts, strict=True)
        ]

    def _recorded(
        self, cursor: DBAPICursor, appends: Sequence[_Append]
    ) -> tuple[dict[str, Envelope], dict[str, tuple[int, str]]]:
        """Return (key → recorded row, stream → version and hash of its last row) of these appends.

        Few statements ask for all, because every statement to a server is a round trip.
        """
        keys = [draft.key for _, _, drafts in appends for draft in drafts] or [""]
        streams = _padded(list({stream for stream, _, _ in appends}))
        rows: list[Envelope] = []
        for start in range(0, len(keys), PAGE):
            page = _padded(keys[start : start + PAGE])
            query = place_query(self.database.mark, len(page), len(streams))
            cursor.execute(query, (*page, *streams))
            rows += map(Envelope._make, cursor.fetchall())
        ends = {row.stream: (row.version, row.hash) for row in rows if not row.position}
        return {row.key: row for row in rows if row.position}, ends

    def _place(
        self, append: _Append, keyed: dict[str, Envelope], ends: dict[str, tuple[int, str]]
    ) -> list[Envelope] | Exception | None:
        """Return the append's rows, added to `keyed` and `ends`; None if they are recorded already.

        Return IdempotencyError if only some of the keys are recorded, and ConcurrencyError.
        """
        stream, expected, drafts = append
        recorded = [keyed[draft.key] for draft in drafts if draft.key in keyed]
        if recorded:
            versions = [row.version for row in recorded]
            partial = len(recorded) < len(drafts) or versions != sorted(versions)
            if partial or any(row.stream != stream for row in recorded):
                return IdempotencyError([row.key for row in recorded])
            return None
        version, head = ends.get(stream, (0, chain.GENESIS))
        if expected not in (None, version):
            return ConcurrencyError(stream, expected or 0, version)
        rows = _placed((version, head), drafts, self._clock)
        keyed.update((row.key, row) for row in rows)
        ends.update((stream, (row.version, row.hash)) for row in rows[-1:])
        return rows

    def adopt(
        self, stream: str, rows: Sequence[Envelope], then: Sequence[New] = (), context: Cause = Cause()
    ) -> int:
        """Append those rows of another log that this log lacks, unchanged; return their number.

        If any row is new, the events `then` follow in the same transaction: no reader sees the rows
        without them.

        The rows must be a whole stream that `chain.check` accepts. Raises ChainError if this log's
        stream differs from the rows, and what `append` raises.
        """
        for row in rows:
            _refuse_unstorable(row)

        def work(cursor: DBAPICursor) -> int:
            query = "SELECT hash FROM events WHERE stream = {} ORDER BY version"
            cursor.execute(query.format(self.database.mark), (stream,))
            fresh = rows[_agreeing(stream, cursor.fetchall(), rows) :]
            failpoints.hit("adopt-began")
            drafts = _drafts(stream, then if fresh else (), context)
            added = [*fresh, *_placed((len(rows), rows[-1].hash), drafts, self._clock)]
            for start in range(0, len(added), PAGE):
                page = [row[1:] for row in added[start : start + PAGE]]
                self.database.insert(cursor, insert_statement(self.database.mark), page)
            failpoints.hit("adopt-inserted")
            return len(fresh)

        try:
            return self._transaction(work)
        except IntegrityError as error:
            why = "an event of it is recorded elsewhere in this log"
            raise ChainError(stream, len(rows), why) from error

    def fits(self, stream: str, rows: Sequence[Envelope]) -> int:
        """Return the number of these rows that `adopt` would add. Raises what `adopt` raises."""
        for row in rows:
            _refuse_unstorable(row)
        query = select(EVENTS.c.hash).where(EVENTS.c.stream == stream).order_by(EVENTS.c.version)
        return len(rows) - _agreeing(stream, self.database.rows(query), rows)

    def _transaction(self, work: Callable[[DBAPICursor], Done]) -> Done:
        """Return `work(cursor)`, done in a transaction; repeat it if the server went away.

        A repetition is safe because a key is recorded once.
        """
        for attempt in range(RECONNECTS + 1):
            try:
                with self.database.appending() as cursor:
                    done = work(cursor)
                failpoints.hit("append-committed")
                return done
            except IntegrityError:
                raise
            except DatabaseError as error:
                if not self.database.gone(error) or attempt == RECONNECTS:
                    self.database.close()  # a connection made on a read-only disk stays read-only
                    raise self.database.unavailable(error) from error
                self.database.lost(attempt)
        raise AssertionError("unreachable")

    def version(self, stream: str) -> int:
        """Return the version of the stream's last row; 0 if there is no such stream."""
        query = select(func.max(EVENTS.c.version)).where(EVENTS.c.stream == stream)
        stream_version = self.database.rows(query)[0][0] or 0
        return stream_version if isinstance(stream_version, int) else len(self.everything(stream))

    def holder(self, *keys: str) -> str | None:
        """Return the name of the stream that has an event under one of these keys, or None."""
        query = select(EVENTS.c.stream).where(EVENTS.c.key.in_(keys)).order_by(EVENTS.c.position)
        rows = self.database.rows(query.limit(1))
        name = rows[0][0] if rows else None
        return name if isinstance(name, str) else None  # a damaged row may hold bytes

    def end(self) -> int:
        """Return the position of the newest row; 0 if the log is empty."""
        return int(self.database.rows(select(func.max(EVENTS.c.position)))[0][0] or 0)

    def read(self, stream: str, after: int = 0, upto: int | None = None) -> list[Envelope]:
        """Return the stream's rows with a version above `after` and at most `upto`, in order."""
        return list(self.iterate(stream, after, upto))

    def iterate(self, stream: str, after: int = 0, upto: int | None = None) -> Iterator[Envelope]:
        """Yield the rows that `read` returns, page by page: each page is a separate query."""
        while True:
            condition = (EVENTS.c.stream == stream) & (EVENTS.c.version > after)
            if upto is not None:
                condition &= EVENTS.c.version <= upto
            query = select(EVENTS).where(condition).order_by(EVENTS.c.version).limit(PAGE)
            rows = self.database.rows(query)
            yield from map(Envelope._make, rows)
            if len(rows) < PAGE:
                return
            after = rows[-1].version

    def everything(self, stream: str) -> list[Envelope]:
        """Return every row under the stream's name, in order of version, for verification.

        `read` misses a row before version 1. SQLite answers it from an index as far as that holds the
        columns; here the table is read, so a row whose name was changed there alone is among the rows.
        """
        positions = select((named := EVENTS.alias()).c.position).where(named.c.stream == stream)
        query = select(EVENTS).where(EVENTS.c.position.in_(positions))
        rows = self.database.rows(query.order_by(EVENTS.c.version, EVENTS.c.position))
        return list(map(Envelope._make, rows))

    def count(self, stream: str) -> int:
        """Return the number of rows under the stream's name, by the index of names if there is one."""
        query = select(func.count()).select_from(EVENTS).where(EVENTS.c.stream == stream)
        return int(self.database.rows(query)[0][0])

    def names(self) -> list[str]:
        """Return a list of the names of all streams, sorted."""
        query = select(EVENTS.c.stream).distinct().order_by(EVENTS.c.stream)
        return [name for (name,) in self.database.rows(query)]

    def read_all(self, after: int = 0, limit: int = PAGE) -> list[Envelope]:
        """Return at most `limit` rows of the whole log with a position above `after`, in order."""
        query = select(EVENTS).where(EVENTS.c.position > after).order_by(EVENTS.c.position).limit(limit)
        return list(map(Envelope._make, self.database.rows(query)))

    def tail(
        self, after: int = 0, poll: float = 0.1, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Envelope]:
        """Yield every row with a position above `after`, also new ones, until `stop()` is true.

        `stop` is asked only when there is nothing new. Every row that is recorded before it becomes
        true is delivered.
        """
        last = False
        while True:
            rows = self.read_all(after)
            for row in rows:
                after = row.position
                yield row
            if not rows:
                if last:
                    return
                last = stop()
                time.sleep(0 if last else poll)

    def streams(self, prefix: str = "") -> list[Envelope]:
        """Return the first row of each stream whose name starts with `prefix`, by position."""
        query = (
            select(EVENTS)
            .where(text("version = 1"), func.substr(EVENTS.c.stream, 1, len(prefix)) == prefix)
            .order_by(EVENTS.c.position)
        )
        return list(map(Envelope._make, self.database.rows(query)))

    def close(self) -> None:
        """Close the connections."""
        self.database.close()


def _agreeing(stream: str, hashes: Sequence[Sequence[object]], rows: Sequence[Envelope]) -> int:
    """Return the number of `rows` that the log has already; raise ChainError if a hash differs."""
    for version, (log_row, new_row) in enumerate(zip(hashes, rows, strict=False), start=1):
        if log_row[0] != new_row.hash:
            raise ChainError(stream, version, "the stream here went another way")
    return min(len(hashes), len(rows))


def _drafts(stream: str, events: Sequence[New], context: Cause) -> list[Envelope]:
    """Return an append's rows, without versions, times and hashes; the first causes the others.

    Raises UnstorableError.
    """
    drafts: list[Envelope] = []
    for new in events:
        event = (new.event.type, new.event.schema_version, new.event.payload(), new.key)
        cause = drafts[0].event_id if drafts else context.causation
        recorder = (context.actor, cause, context.correlation, "", CODE_VERSION)
        drafts.append(Envelope(0, stream, 0, _event_id(), *event, *recorder, "", ""))
        _refuse_unstorable(drafts[-1])
    return drafts


def _event_id() -> str:
    """Return a UUID of version 7: milliseconds, then 74 random bits.

    Ids of one time are neighbours in their index, so that a commit writes few of its pages.
    """
    bits = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10))
    return str(uuid.UUID(int=bits & ~(0xF << 76 | 0b11 << 62) | 0x7 << 76 | 0b10 << 62))


def _refuse_unstorable(row: Envelope) -> None:
    """Raise UnstorableError unless every database, and every table made from a row, can take it."""
    if not storable("".join(map(str, row))) or has_zero(row.data):
        texts = {name: value for name, value in row._asdict().items() if isinstance(value, str)}
        bad = (name for name, value in texts.items() if not storable(value))
        raise UnstorableError(row.type, next(bad, "data"))


def _placed(
    end: tuple[int, str], drafts: Sequence[Envelope], clock: Callable[[], datetime]
) -> list[Envelope]:
    """Return the drafts with versions, one time and hashes, which follow on `end` (version, hash)."""
    version, head = end
    now = clock().isoformat(timespec="microseconds")
    rows: list[Envelope] = []
    for draft in drafts:
        version += 1
        fields = draft._asdict()
        fields.update(version=version, recorded_at=now, prev_hash=head)
        fields["hash"] = head = chain.link(fields)
        rows.append(Envelope(**fields))
    return rows


#: The columns whose values are known before a row is inserted, in the order of Envelope's fields.
COLUMNS = Envelope._fields[1:]


@cache
def insert_statement(mark: str) -> str:
    """Return the SQL that inserts one row; `mark` is the driver's placeholder of a parameter."""
    return f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({', '.join([mark] * len(COLUMNS))})"


def _padded(texts: list[str]) -> list[str]:
    """Return the texts, the last one repeated to a power of two: few statements have to be prepared."""
    return texts + texts[-1:] * ((1 << (len(texts) - 1).bit_length()) - len(texts))


@lru_cache(64)
def place_query(mark: str, keys: int, streams: int) -> str:
    """Return the SQL for the rows of `keys` keys and, as rows at position 0, the ends of streams."""
    end = ("0", "stream", "version", *["''"] * 2, "0", *["''"] * 3, "NULL", "NULL", *["''"] * 3, "hash")
    last = f"""SELECT {", ".join(end)} FROM (SELECT stream, version, hash FROM events
        WHERE stream = {mark} ORDER BY version DESC LIMIT 1) AS last"""
    keyed = f"SELECT {', '.join(Envelope._fields)} FROM events WHERE key IN "
    return " UNION ALL ".join([f"{keyed}({', '.join([mark] * keys)})", *[last] * streams])
