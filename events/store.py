"""The event store: append, read, tail. One table, append-only.

What it guarantees: versions of a stream are 1, 2, 3, … without gaps; an append is all or nothing
and durable when it returns; a key is recorded once. What it does not: it never calls anybody back,
and a reader sees events only by asking again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, func, insert, select
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlmodel import Field, SQLModel, UniqueConstraint

from events import chain, failpoints
from events.envelope import Context, Envelope, Event
from events.errors import ConcurrencyError, IdempotencyError, StoreUnavailableError

CODE_VERSION = "agent-forge 0.1.0"


class EventRow(SQLModel, table=True):
    """The table. Never used to validate (SQLModel table models do not): `Registry.load` does."""

    __tablename__ = "events"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (UniqueConstraint("stream", "version"), {"sqlite_autoincrement": True})

    position: int | None = Field(default=None, primary_key=True)
    stream: str = Field(index=True)
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


EVENTS = EventRow.__table__  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True)
class New:
    """An event to append and the key under which it can be recorded only once."""

    event: Event
    key: str


@dataclass(frozen=True)
class Appended:
    """What an append left in the log. `fresh` is False where it had been recorded before."""

    rows: tuple[Envelope, ...]
    fresh: bool


class EventStore:
    """An append-only log on a SQLAlchemy engine (see `events.sqlite.open_store`)."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime] | None = None) -> None:
        self.engine = engine
        self._clock = clock or (lambda: datetime.now(UTC))

    def append(
        self,
        stream: str,
        expected_version: int | None,
        events: Sequence[New],
        context: Context = Context(),
    ) -> Appended:
        """Append all events or none.

        `expected_version` is the version that the caller's decision was made at (0: the stream is
        new); None appends behind whatever is there. Events whose keys are recorded already in
        this stream are returned as they stand, whatever the version.

        Raises ConcurrencyError, IdempotencyError, StoreUnavailableError.
        """
        keys = [new.key for new in events]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise IdempotencyError(twice)
        try:
            with self.engine.connect().execution_options(forge_write=True) as connection:
                with connection.begin():
                    known = self._known(connection, stream, keys)
                    if known is not None:
                        return Appended(known, fresh=False)
                    failpoints.hit("append-began")
                    done = self._insert(connection, stream, expected_version, events, context)
                    failpoints.hit("append-inserted")
                failpoints.hit("append-committed")
                return done
        except IntegrityError as error:
            raise ConcurrencyError(stream, expected_version or 0, self.version(stream)) from error
        except DatabaseError as error:
            raise StoreUnavailableError(str(self.engine.url), str(error.orig)) from error

    def _known(
        self, connection: Connection, stream: str, keys: list[str]
    ) -> tuple[Envelope, ...] | None:
        """The rows recorded under these keys: all of them, or None; anything between is an error."""
        query = select(EVENTS).where(EVENTS.c.key.in_(keys)).order_by(EVENTS.c.position)
        rows = tuple(_envelope(row) for row in connection.execute(query))
        if not rows:
            return None
        if [row.key for row in rows] != keys or any(row.stream != stream for row in rows):
            raise IdempotencyError([row.key for row in rows])
        return rows

    def _insert(
        self,
        connection: Connection,
        stream: str,
        expected: int | None,
        events: Sequence[New],
        context: Context,
    ) -> Appended:
        last = connection.execute(
            select(EVENTS.c.version, EVENTS.c.hash)
            .where(EVENTS.c.stream == stream)
            .order_by(EVENTS.c.version.desc())
            .limit(1)
        ).first()
        version, head = (last.version, last.hash) if last else (0, chain.GENESIS)
        if expected is not None and expected != version:
            raise ConcurrencyError(stream, expected, version)
        rows = []
        for new in events:
            version += 1
            values = self._values(stream, version, new, context, head)
            head = values["hash"]
            result = connection.execute(insert(EVENTS).values(values))
            assert result.inserted_primary_key is not None
            rows.append(Envelope(position=int(result.inserted_primary_key[0]), **values))
        return Appended(tuple(rows), fresh=True)

    def _values(
        self, stream: str, version: int, new: New, context: Context, head: str
    ) -> dict[str, Any]:
        values: dict[str, Any] = {
            "stream": stream,
            "version": version,
            "event_id": str(uuid.uuid4()),
            "type": new.event.type,
            "schema": new.event.schema_version,
            "data": new.event.payload(),
            "key": new.key,
            "actor": context.actor,
            "causation": context.causation,
            "correlation": context.correlation,
            "recorded_at": self._clock().isoformat(timespec="microseconds"),
            "code_version": CODE_VERSION,
            "prev_hash": head,
        }
        return {**values, "hash": chain.link(values)}

    def version(self, stream: str) -> int:
        """The stream's version; 0 where there is no such stream."""
        query = select(func.max(EVENTS.c.version)).where(EVENTS.c.stream == stream)
        return int(self._rows(query)[0][0] or 0)

    def read(self, stream: str, after: int = 0) -> list[Envelope]:
        """The stream's rows with a version above `after`, in order."""
        query = (
            select(EVENTS)
            .where(EVENTS.c.stream == stream, EVENTS.c.version > after)
            .order_by(EVENTS.c.version)
        )
        return [_envelope(row) for row in self._rows(query)]

    def read_all(self, after: int = 0, limit: int = 1000) -> list[Envelope]:
        """At most `limit` rows of the whole log with a position above `after`, in order."""
        query = (
            select(EVENTS).where(EVENTS.c.position > after).order_by(EVENTS.c.position).limit(limit)
        )
        return [_envelope(row) for row in self._rows(query)]

    def tail(
        self, after: int = 0, poll: float = 0.1, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Envelope]:
        """Every row with a position above `after`, now and as they come, until `stop()` is true.

        `stop` is asked only when there is nothing new, so what is there is always delivered.
        """
        while True:
            rows = self.read_all(after)
            for row in rows:
                after = row.position
                yield row
            if not rows:
                if stop():
                    return
                time.sleep(poll)

    def streams(self, prefix: str = "") -> list[Envelope]:
        """The first row of every stream whose name starts with `prefix`, in order of position."""
        query = (
            select(EVENTS)
            .where(EVENTS.c.version == 1, func.substr(EVENTS.c.stream, 1, len(prefix)) == prefix)
            .order_by(EVENTS.c.position)
        )
        return [_envelope(row) for row in self._rows(query)]

    def _rows(self, query: Any) -> Sequence[Any]:
        try:
            with self.engine.connect() as connection:
                return connection.execute(query).all()
        except DatabaseError as error:
            raise StoreUnavailableError(str(self.engine.url), str(error.orig)) from error

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()


def _envelope(row: Any) -> Envelope:
    return Envelope(**row._mapping)
