"""Event store: append to, read and tail one append-only table.

The store guarantees: versions of a stream are 1, 2, 3, … without gaps; an append is all or nothing
and durable when it returns; a key is recorded once. The store makes no callbacks: a reader sees new
events only by asking again. The SQL of appends is built once per kind of database and executed by its
driver, without SQLAlchemy.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from importlib import metadata

from sqlalchemy import BigInteger, Integer, func, select, text
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlmodel import Field, SQLModel, UniqueConstraint

from agent_forge.events import chain, failpoints
from agent_forge.events.database import RECONNECTS, Database, Values
from agent_forge.events.envelope import Cause, Envelope, Event, has_zero, storable
from agent_forge.events.errors import ChainError, ConcurrencyError, IdempotencyError, UnstorableError

CODE_VERSION = f"agent-forge {metadata.version('agent-forge')}"

#: Rows read at a time: following a log takes the same memory, however long the log is.
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


class _MovedError(Exception):
    """A stream whose end has moved, or a known key: read the end, and append as usual."""


class EventStore:
    """An append-only log in a database (of `events.databases`: SQLite or PostgreSQL)."""

    def __init__(self, database: Database, clock: Callable[[], datetime] | None = None) -> None:
        self.database = database
        self._clock = clock or (lambda: datetime.now(UTC))
        #: Stream → version and hash of the row that this store appended to it last.
        self._ends: dict[str, tuple[int, str]] = {}

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
        keys = [new.key for new in events]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise IdempotencyError(twice)
        drafts = _drafts(stream, events, context)

        end = self._ends.get(stream)
        if end is not None and expected_version in (None, end[0]):
            with suppress(IntegrityError, _MovedError):  # another append was first: read the end
                behind = partial(self._append_behind, end, drafts)
                return self._remember(stream, self._transaction(behind, alone=len(drafts) > 1))

        def work(cursor: DBAPICursor) -> Appended:
            keyed_rows, version, head = self._place(cursor, stream, keys)
            if keyed_rows:
                return Appended(keyed_rows, fresh=False)
            failpoints.hit("append-began")
            if expected_version not in (None, version):
                raise ConcurrencyError(stream, expected_version or 0, version)
            rows = _placed((version, head), drafts, self._clock)
            statement = insert_statement(self.database.mark)
            positions = self.database.insert(cursor, statement, [row[1:] for row in rows])
            failpoints.hit("append-inserted")
            return Appended(_positioned(positions, rows), fresh=True)

        try:
            return self._remember(stream, self._transaction(work))
        except IntegrityError as error:
            raise ConcurrencyError(stream, expected_version or 0, self.version(stream)) from error

    def _append_behind(
        self, end: tuple[int, str], drafts: Sequence[Envelope], cursor: DBAPICursor
    ) -> Appended:
        """Append the drafts behind `end`, the stream's last known row; return the Appended, all fresh.

        Raises _MovedError if that row is no longer the last, or if a key is known.
        """
        failpoints.hit("append-began")
        rows = _placed(end, drafts, self._clock)
        statement = follow_statement(self.database.mark)
        parameters = list(map(follow_parameters, rows))
        if len(rows) == 1:
            positions = [self.database.insert_alone(cursor, statement, parameters[0])]
        else:
            positions = self.database.insert(cursor, statement, parameters)
        if None in positions:
            raise _MovedError
        failpoints.hit("append-inserted")
        return Appended(_positioned(positions, rows), fresh=True)

    def _remember(self, stream: str, done: Appended) -> Appended:
        """Keep the stream's end after a fresh append, else forget the end; return `done`."""
        if done.fresh and done.rows:
            if len(self._ends) > 1000:
                self._ends.clear()
            self._ends[stream] = done.rows[-1].version, done.rows[-1].hash
        else:
            self._ends.pop(stream, None)
        return done

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

        def work(cursor: DBAPICursor) -> Appended:
            fresh = rows[self._common(cursor, stream, rows) :]
            failpoints.hit("adopt-began")
            drafts = _drafts(stream, then if fresh else (), context)
            added = [*fresh, *_placed((len(rows), rows[-1].hash), drafts, self._clock)]
            for start in range(0, len(added), PAGE):
                page = [row[1:] for row in added[start : start + PAGE]]
                self.database.insert(cursor, insert_statement(self.database.mark), page)
            failpoints.hit("adopt-inserted")
            return Appended(tuple(fresh), fresh=True)

        self._ends.pop(stream, None)
        try:
            return len(self._transaction(work).rows)
        except IntegrityError as error:
            why = "an event of it is recorded elsewhere in this log"
            raise ChainError(stream, len(rows), why) from error

    def fits(self, stream: str, rows: Sequence[Envelope]) -> int:
        """Return the number of these rows that `adopt` would add. Raises what `adopt` raises."""
        for row in rows:
            _refuse_unstorable(row)
        query = select(EVENTS.c.hash).where(EVENTS.c.stream == stream).order_by(EVENTS.c.version)
        return len(rows) - _agreeing(stream, self.database.rows(query), rows)

    def _common(self, cursor: DBAPICursor, stream: str, rows: Sequence[Envelope]) -> int:
        query = "SELECT hash FROM events WHERE stream = {} ORDER BY version"
        cursor.execute(query.format(self.database.mark), (stream,))
        return _agreeing(stream, cursor.fetchall(), rows)

    def _transaction(self, work: Callable[[DBAPICursor], Appended], alone: bool = True) -> Appended:
        """Return `work(cursor)`, done in a transaction; repeat it if the server went away.

        A repetition is safe because a key is recorded once.
        """
        for attempt in range(RECONNECTS + 1):
            try:
                with self.database.appending(alone) as cursor:
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

    def _place(
        self, cursor: DBAPICursor, stream: str, keys: list[str]
    ) -> tuple[tuple[Envelope, ...], int, str]:
        """Return (the rows recorded under these keys, version of the stream's last row, its hash).

        Raises IdempotencyError if only some of the keys are recorded. One statement asks for all,
        because every statement to a server is a round trip.
        """
        cursor.execute(place_query(self.database.mark, len(keys)), (*keys, stream))
        rows = sorted(map(Envelope._make, cursor.fetchall()))
        last = rows.pop(0) if rows and rows[0].position == 0 else None
        if rows and ([r.key for r in rows] != keys or any(r.stream != stream for r in rows)):
            raise IdempotencyError([row.key for row in rows])
        return tuple(rows), last.version if last else 0, last.hash if last else chain.GENESIS

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
    """Return an append's rows, without versions and hashes; the first is the cause of the others."""
    drafts = [_draft(stream, new, context) for new in events]
    for i in range(1, len(drafts)):
        drafts[i] = drafts[i]._replace(causation=drafts[0].event_id)
    return drafts


def _draft(stream: str, new: New, context: Cause) -> Envelope:
    """Return a new event's row, without version, time and hashes. Raises UnstorableError."""
    draft = Envelope(
        position=0,
        stream=stream,
        version=0,
        event_id=str(uuid.uuid4()),
        type=new.event.type,
        schema=new.event.schema_version,
        data=new.event.payload(),
        key=new.key,
        actor=context.actor,
        causation=context.causation,
        correlation=context.correlation,
        recorded_at="",
        code_version=CODE_VERSION,
        prev_hash="",
        hash="",
    )
    _refuse_unstorable(draft)
    return draft


def _refuse_unstorable(row: Envelope) -> None:
    """Raise UnstorableError unless every database, and every table made from a row, can take it."""
    fields: Mapping[str, object] = row._asdict()
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    if not storable("".join(texts.values())) or has_zero(texts["data"]):
        bad = (name for name, value in texts.items() if not storable(value))
        raise UnstorableError(texts["type"], next(bad, "data"))


def _placed(
    end: tuple[int, str], drafts: Sequence[Envelope], clock: Callable[[], datetime]
) -> list[Envelope]:
    """Return the drafts with versions, times and hashes, which follow on `end` (version, hash)."""
    version, head = end
    rows: list[Envelope] = []
    for draft in drafts:
        version += 1
        now = clock().isoformat(timespec="microseconds")
        row = draft._replace(version=version, recorded_at=now, prev_hash=head)
        head = chain.link(row._asdict())
        rows.append(row._replace(hash=head))
    return rows


def _positioned(positions: Sequence[int | None], rows: Sequence[Envelope]) -> tuple[Envelope, ...]:
    pairs = zip(positions, rows, strict=True)
    return tuple(row._replace(position=position or 0) for position, row in pairs)


#: The columns whose values are known before a row is inserted, in the order of Envelope's fields.
COLUMNS = Envelope._fields[1:]


@cache
def insert_statement(mark: str) -> str:
    """Return the SQL that inserts one row; `mark` is the driver's placeholder of a parameter."""
    marks = ", ".join(mark for _ in COLUMNS)
    return f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({marks})"


@cache
def follow_statement(mark: str) -> str:
    """Return the SQL that inserts a row only behind its stream's last row and with a new key.

    The last row must have the version before and the hash `prev_hash` (see `follow_parameters`).
    So the database never has to refuse the insert.
    """
    marks = ", ".join(mark for _ in COLUMNS)
    before = f"SELECT 1 FROM events WHERE stream = {mark} AND version = {mark} AND hash = {mark}"
    taken = f"SELECT 1 FROM events WHERE stream = {mark} AND version = {mark}"
    key_query = f"SELECT 1 FROM events WHERE key = {mark}"
    return f"""INSERT INTO events ({", ".join(COLUMNS)}) SELECT {marks} WHERE EXISTS ({before})
        AND NOT EXISTS ({taken}) AND NOT EXISTS ({key_query})"""


def follow_parameters(row: Envelope) -> Values:
    """Return a row's values, followed by the values that `follow_statement` compares."""
    behind = (row.stream, row.version - 1, row.prev_hash)
    return (*row[1:], *behind, row.stream, row.version, row.key)


@lru_cache(64)
def place_query(mark: str, keys: int) -> str:
    """Return the SQL for the rows of `keys` keys and, as a row at position 0, the stream's last one."""
    marks = ", ".join([mark] * keys) or "NULL"
    end = ("0", "''", "version", *["''"] * 2, "0", *["''"] * 3, "NULL", "NULL", *["''"] * 3, "hash")
    return f"""SELECT {", ".join(Envelope._fields)} FROM events WHERE key IN ({marks}) UNION ALL
        SELECT {", ".join(end)} FROM (SELECT version, hash FROM events WHERE stream = {mark}
        ORDER BY version DESC LIMIT 1) AS last"""
