"""Projections: tables made from the log, for questions that a fold would answer too slowly.

They are not truth. Each remembers the position that it has come to, in the transaction that brought it
there, so that a crash leaves it behind, never wrong; whoever reads it lets it catch up first. One of
another version is dropped and made anew. One that has seen events that the log no longer has is not:
that is a finding, and it is said.

One event never stops a table: a row that the tables cannot take (damaged, forged, a number that no
column holds) is passed over and noted, and `forge db check` lists it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Protocol

from sqlalchemy import Connection, Table, delete, func, insert, select, update
from sqlalchemy.exc import DataError, IntegrityError
from sqlmodel import BigInteger, Field, SQLModel

from events import failpoints
from events.database import Database
from events.envelope import Envelope
from events.errors import EventsError, PayloadError, ProjectionError, StoreUnavailableError
from events.store import EVENTS, PAGE, EventStore

log = logging.getLogger(__name__)

#: In a process one thread at a time: others would wait for it in the database, each with a connection.
_ONE = threading.RLock()


class ProjectionRow(SQLModel, table=True):
    """How far each projection has come."""

    __tablename__ = "projections"  # pyright: ignore[reportAssignmentType]

    name: str = Field(primary_key=True)
    version: int
    position: int = Field(sa_type=BigInteger)
    #: Hash of the row at that position.
    hash: str


PROJECTIONS: Table = ProjectionRow.__table__  # pyright: ignore[reportAttributeAccessIssue]


class GapRow(SQLModel, table=True):
    """An event that a projection passed over, and why."""

    __tablename__ = "projection_gaps"  # pyright: ignore[reportAssignmentType]

    name: str = Field(primary_key=True)
    position: int = Field(sa_type=BigInteger, primary_key=True)
    why: str


GAPS: Table = GapRow.__table__  # pyright: ignore[reportAttributeAccessIssue]

#: Errors that one row's data cause. All others (a full disk, a server that is gone, a defect of a
#: projection) are not the row's: they stop the tables, and a later version takes the row.
_OF_A_ROW = (DataError, IntegrityError, EventsError, OverflowError, UnicodeError)

#: Columns of an event that hold another kind of value than text.
_KINDS: dict[str, tuple[type, ...]] = {
    "position": (int,), "version": (int,), "schema": (int,),
    "causation": (str, type(None)), "correlation": (str, type(None)),
}  # fmt: skip


class Projection(Protocol):
    """What a domain supplies."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def version(self) -> int:
        """Raised with every change of tables or meaning."""
        ...

    @property
    def tables(self) -> Sequence[Table]:
        """Its own tables."""
        ...

    def apply(self, store: EventStore, connection: Connection, rows: Sequence[Envelope]) -> None:
        """Put rows of the log, in order of position, into the tables.

        Raises EventsError for a row that the tables cannot take.
        """
        ...


def catch_up(store: EventStore, projection: Projection) -> int:
    """Bring a projection to the end of the log; the number of rows that were new to it.

    Raises ProjectionError where the log has lost events that it had seen.
    """
    with _ONE, store.database.explained():
        return _caught_up(store, projection)


def _caught_up(store: EventStore, projection: Projection) -> int:
    position = _prepare(store, projection)
    seen = 0
    while rows := store.read_all(position, PAGE):
        failpoints.hit("projection-read")
        with store.database.writing() as connection:
            if _locked(connection, projection) == position:
                _apply(store, connection, projection, rows)
                _advance(connection, projection, rows[-1])
                failpoints.hit("projection-applied")
                seen += len(rows)
                position = rows[-1].position
                continue
        position = _prepare(store, projection)  # somebody else was at it too
    return seen


def _apply(
    store: EventStore, connection: Connection, projection: Projection, rows: Sequence[Envelope]
) -> None:
    """Apply all rows; where that fails, each alone, and note which cannot be applied."""
    try:
        for row in rows:
            _refuse_damaged(row)
        with connection.begin_nested():
            projection.apply(store, connection, rows)
        return
    except StoreUnavailableError:
        raise
    except _OF_A_ROW as error:
        why = str(getattr(error, "orig", None) or error) or type(error).__name__
    if len(rows) > 1:
        for row in rows:
            _apply(store, connection, projection, (row,))
        return
    what = f"{rows[0].stream} {rows[0].version} ({rows[0].type}): {why}"
    what = what.replace("\0", "").encode("utf-8", "backslashreplace").decode()[:1000]
    log.error("projection %s passes over event %s", projection.name, what)
    gap = {"name": projection.name, "position": rows[0].position, "why": what}
    connection.execute(insert(GAPS).values(**gap))


def _refuse_damaged(row: Envelope) -> None:
    """Raise PayloadError if a column holds another kind of value: SQLite stores anything anywhere."""
    for name, value in row._asdict().items():
        kinds = _KINDS.get(name, (str,))
        if not isinstance(value, kinds):
            raise PayloadError(
                row.position, str(row.type), f"its {name} is a {type(value).__name__}"
            )


def gaps(database: Database) -> list[str]:
    """The events that projections passed over, a line each."""
    with database.reading() as connection:
        if not connection.dialect.has_table(connection, GAPS.name):
            return []
        found = connection.execute(select(GAPS).order_by(GAPS.c.name, GAPS.c.position)).all()
    return [f"the tables {gap.name} are made without event {gap.why}" for gap in found]


def position(store: EventStore, projection: Projection) -> int:
    """The position in the log that the tables have come to."""
    return _prepare(store, projection)


def rebuild(store: EventStore, projection: Projection) -> int:
    """Drop the tables and make them from the whole log; the number of rows read."""
    with store.database.explained(), store.database.migrating() as connection:
        _drop(connection, projection)
    return catch_up(store, projection)


def _prepare(store: EventStore, projection: Projection) -> int:
    """The position it has come to; its tables exist and are of its version."""
    with store.database.reading() as connection:
        found = _state(connection, projection)
        if found is not None and found.version == projection.version:
            _check(connection, projection, found)
            return int(found.position)
    with store.database.migrating() as connection:
        found = _state(connection, projection)
        if found is None or found.version != projection.version:
            if found is not None:
                log.info("projection %s is of another version: made anew", projection.name)
            _drop(connection, projection)
            PROJECTIONS.create(connection, checkfirst=True)
            GAPS.create(connection, checkfirst=True)
            for table in projection.tables:
                table.create(connection, checkfirst=True)
            start = {"name": projection.name, "version": projection.version}
            connection.execute(insert(PROJECTIONS).values(**start, position=0, hash=""))
            failpoints.hit("projection-made")
            return 0
        return int(found.position)


def _state(connection: Connection, projection: Projection) -> ProjectionRow | None:
    if not connection.dialect.has_table(connection, PROJECTIONS.name):
        return None
    query = select(PROJECTIONS).where(PROJECTIONS.c.name == projection.name)
    return connection.execute(query).first()  # pyright: ignore[reportReturnType]


def _check(connection: Connection, projection: Projection, found: ProjectionRow) -> None:
    """The event that it came to last is still there, and still the same."""
    if not found.position:
        return
    query = select(EVENTS.c.hash).where(EVENTS.c.position == found.position)
    now = connection.execute(query).scalar()
    if now != found.hash:
        last = connection.execute(select(func.max(EVENTS.c.position))).scalar() or 0
        raise ProjectionError(projection.name, found.position, last)


def _locked(connection: Connection, projection: Projection) -> int | None:
    """The position, held against others until the transaction ends."""
    query = select(PROJECTIONS.c.position).where(PROJECTIONS.c.name == projection.name)
    return connection.execute(query.with_for_update()).scalar()


def _advance(connection: Connection, projection: Projection, last: Envelope) -> None:
    own = PROJECTIONS.c.name == projection.name
    moved = {"position": last.position, "hash": last.hash}
    connection.execute(update(PROJECTIONS).where(own).values(**moved))


def _drop(connection: Connection, projection: Projection) -> None:
    for table in reversed(projection.tables):
        table.drop(connection, checkfirst=True)
    for table in (PROJECTIONS, GAPS):
        if connection.dialect.has_table(connection, table.name):
            connection.execute(delete(table).where(table.c.name == projection.name))
