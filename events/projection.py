"""Projections: tables made from the log, for questions that a fold would answer too slowly.

Projections are not the truth. Each stores the position that it has reached, in the same transaction as
its rows, so that a crash leaves the projection behind, never wrong. A reader lets the projection catch
up first. A projection of another version is dropped and made again. A projection that has seen events
which the log no longer has is not made again: the lost events are reported (ProjectionError).

One event never stops a table: a row that the tables cannot take (damaged, forged, a number that no
column holds) is skipped and noted, and `forge db check` lists it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Protocol

from sqlalchemy import Connection, Table, delete, func, insert, select, update
from sqlalchemy.exc import DataError, IntegrityError
from sqlmodel import BigInteger, Field, SQLModel

from agent_forge.events import failpoints
from agent_forge.events.database import Database
from agent_forge.events.envelope import Envelope
from agent_forge.events.errors import EventsError, PayloadError, ProjectionError, StoreUnavailableError
from agent_forge.events.store import EVENTS, PAGE, EventStore

log = logging.getLogger(__name__)

#: One thread of a process catches up at a time; the others would wait in the database, each with a
#: connection.
_ONE = threading.RLock()


class ProjectionRow(SQLModel, table=True):
    """The position that a projection has reached."""

    __tablename__ = "projections"  # pyright: ignore[reportAssignmentType]

    name: str = Field(primary_key=True)
    version: int
    position: int = Field(sa_type=BigInteger)
    #: Hash of the row at that position.
    hash: str


PROJECTIONS = ProjectionRow.metadata.tables["projections"]


class GapRow(SQLModel, table=True):
    """An event that a projection skipped, and the reason."""

    __tablename__ = "projection_gaps"  # pyright: ignore[reportAssignmentType]

    name: str = Field(primary_key=True)
    position: int = Field(sa_type=BigInteger, primary_key=True)
    why: str


GAPS = GapRow.metadata.tables["projection_gaps"]

#: Errors that one row's data cause. Other errors (a full disk, a server that is gone, a defect of a
#: projection) stop the projection instead, and a later version of the program can take the row.
_OF_A_ROW = (DataError, IntegrityError, EventsError, OverflowError, UnicodeError)

#: Columns of an event that do not hold text, with their types.
_KINDS: dict[str, tuple[type, ...]] = {
    "position": (int,),
    "version": (int,),
    "schema": (int,),
    "causation": (str, type(None)),
    "correlation": (str, type(None)),
}


class Projection(Protocol):
    """The interface of a projection, which a domain supplies."""

    @property
    def name(self) -> str:
        """The projection's name."""
        ...

    @property
    def version(self) -> int:
        """The projection's version, raised with every change of its tables or their meaning."""
        ...

    @property
    def tables(self) -> Sequence[Table]:
        """The projection's own tables."""
        ...

    def apply(self, store: EventStore, connection: Connection, rows: Sequence[Envelope]) -> None:
        """Put rows of the log in order into the tables. Raises EventsError for one that cannot fit."""
        ...


def catch_up(store: EventStore, projection: Projection) -> int:
    """Bring a projection to the end of the log; return the number of rows that were new to it.

    Raises ProjectionError if the log has lost events that the projection had seen.
    """
    with _ONE, store.database.explained():
        return _caught_up(store, projection)


def _caught_up(store: EventStore, projection: Projection) -> int:
    position = _prepare(store, projection)
    count = 0
    while rows := store.read_all(position, PAGE):
        failpoints.hit("projection-read")
        with store.database.writing() as connection:
            if _locked(connection, projection) == position:
                _apply(store, connection, projection, rows)
                _advance(connection, projection, rows[-1])
                failpoints.hit("projection-applied")
                count += len(rows)
                position = rows[-1].position
                continue
        position = _prepare(store, projection)  # another process moved the projection meanwhile
    return count


def _apply(
    store: EventStore, connection: Connection, projection: Projection, rows: Sequence[Envelope]
) -> None:
    """Apply all rows; if one is at fault, apply each alone, and log and skip those that fail."""
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
    """Raise PayloadError if a column holds a value of a wrong type, which SQLite would store."""
    for name, value in row._asdict().items():
        kinds = _KINDS.get(name, (str,))
        if not isinstance(value, kinds):
            raise PayloadError(row.position, str(row.type), f"its {name} is a {type(value).__name__}")


def gaps(database: Database) -> list[str]:
    """Return a line for each event that a projection skipped, with the reason; empty if none."""
    with database.reading() as connection:
        if not connection.dialect.has_table(connection, GAPS.name):
            return []
        gap_rows = connection.execute(select(GAPS).order_by(GAPS.c.name, GAPS.c.position)).all()
    return [f"the tables {gap.name} are made without event {gap.why}" for gap in gap_rows]


def position(store: EventStore, projection: Projection) -> int:
    """Return the position of the newest row that the tables have, or 0; make missing tables."""
    return _prepare(store, projection)


def rebuild(store: EventStore, projection: Projection) -> int:
    """Drop the tables and make them from the whole log; return the number of rows read."""
    with store.database.explained(), store.database.migrating() as connection:
        _drop(connection, projection)
    return catch_up(store, projection)


def _prepare(store: EventStore, projection: Projection) -> int:
    """Return the projection's position; create tables that are missing or of another version."""
    with store.database.reading() as connection:
        row = _state(connection, projection)
        if row is not None and row.version == projection.version:
            _check(connection, projection, row)
            return int(row.position)
    with store.database.migrating() as connection:
        row = _state(connection, projection)
        if row is None or row.version != projection.version:
            if row is not None:
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
        return int(row.position)


def _state(connection: Connection, projection: Projection) -> ProjectionRow | None:
    if not connection.dialect.has_table(connection, PROJECTIONS.name):
        return None
    query = select(PROJECTIONS).where(PROJECTIONS.c.name == projection.name)
    return connection.execute(query).first()  # pyright: ignore[reportReturnType]


def _check(connection: Connection, projection: Projection, row: ProjectionRow) -> None:
    """Raise ProjectionError if the event at the projection's position is missing or has changed."""
    if not row.position:
        return
    query = select(EVENTS.c.hash).where(EVENTS.c.position == row.position)
    now = connection.execute(query).scalar()
    if now != row.hash:
        last = connection.execute(select(func.max(EVENTS.c.position))).scalar() or 0
        raise ProjectionError(projection.name, row.position, last)


def _locked(connection: Connection, projection: Projection) -> int | None:
    """Lock the projection's row until the transaction ends; return its position, None without a row."""
    query = select(PROJECTIONS.c.position).where(PROJECTIONS.c.name == projection.name)
    return connection.execute(query.with_for_update()).scalar()


def _advance(connection: Connection, projection: Projection, last: Envelope) -> None:
    condition = PROJECTIONS.c.name == projection.name
    moved = {"position": last.position, "hash": last.hash}
    connection.execute(update(PROJECTIONS).where(condition).values(**moved))


def _drop(connection: Connection, projection: Projection) -> None:
    for table in reversed(projection.tables):
        table.drop(connection, checkfirst=True)
    for table in (PROJECTIONS, GAPS):
        if connection.dialect.has_table(connection, table.name):
            connection.execute(delete(table).where(table.c.name == projection.name))
