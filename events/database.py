"""A database that a log lives in: connections, transactions and errors. What differs between SQLite
and PostgreSQL is in `sqlite.py` and `postgres.py`, nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Dialect, Engine
from sqlalchemy.exc import DatabaseError, DBAPIError

from events.errors import StoreUnavailableError

#: Times that something is tried again when the server goes away under it: over six seconds in all.
RECONNECTS = 5


class Database:
    """An engine, and how this kind of database is written to."""

    #: Statements that make the log's table append-only; safe to repeat.
    append_only: tuple[str, ...] = ()
    #: What stands for a parameter in the driver's statements.
    mark = "?"
    #: The database's own clock, SQL for seconds since 1970: machines need not agree on the time.
    clock = "((julianday('now') - 2440587.5) * 86400.0)"

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        #: For messages; never with a password.
        self.name = name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads. Raises StoreUnavailableError."""
        with self.explained(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes: committed at the end, rolled back where something is raised."""
        with self.engine.connect().execution_options(forge_write=True) as connection:
            with connection.begin():
                yield connection

    @contextmanager
    def appending(self, alone: bool = True) -> Iterator[Any]:
        """A transaction that appends: positions are given out and become visible in one order.

        From its beginning on no other one appends; with `alone` false, from `insert_alone` on.
        Yields the driver's own cursor, because SQLAlchemy's way to it takes longer than all else in
        an append. What the driver raises comes out as SQLAlchemy's error all the same.
        """
        dialect, link = self.engine.dialect, None
        try:
            link = self.engine.raw_connection()
            cursor = link.cursor()
            if alone:
                self.begin_append(cursor)
            yield cursor
            cursor.close()
            link.commit()
        except dialect.loaded_dbapi.Error as error:
            broken = link and link.dbapi_connection
            lost = link is None or dialect.is_disconnect(error, broken, None)
            if link and lost:
                link.invalidate(error)
            raise _wrapped(error, dialect, lost) from error
        except Exception:
            raise
        except BaseException:  # interrupted, perhaps in the middle of a statement
            if link:
                link.invalidate()
            raise
        finally:
            if link:
                link.close()  # rolls back what was not committed

    def begin_append(self, cursor: Any) -> None:
        """Begin the transaction, alone in it as far as appends go."""
        raise NotImplementedError

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A transaction that changes tables; nobody else does at the same time."""
        with self.writing() as connection:
            yield connection

    def insert(
        self, cursor: Any, statement: str, rows: Sequence[tuple[Any, ...]]
    ) -> Sequence[int | None]:
        """Insert rows of the log in their order; their positions, None for one that did not go in."""
        raise NotImplementedError

    def insert_alone(self, cursor: Any, statement: str, row: tuple[Any, ...]) -> int | None:
        """Insert one row, once no other transaction appends; its position, None if it did not go in.

        For `appending(alone=False)`: where that takes a statement less than beginning alone.
        """
        self.begin_append(cursor)
        return self.insert(cursor, statement, [row])[0]

    def gone(self, error: DatabaseError) -> bool:
        """Whether the server went away, so that trying again makes sense."""
        return False

    def refuses_changes(self, connection: Connection) -> bool:
        """Whether the guards of `append_only` are in place."""
        raise NotImplementedError

    def damage(self, connection: Connection) -> list[str]:
        """What the database itself finds wrong with its files."""
        raise NotImplementedError

    def last_position(self, connection: Connection) -> int | None:
        """The highest position that ever was committed, its row there or not; None: not known."""
        raise NotImplementedError

    def rows(self, query: Any) -> Sequence[Any]:
        """All rows of a query; asked again where the server went away. Raises StoreUnavailableError."""
        for attempt in range(RECONNECTS + 1):
            try:
                with self.engine.connect() as connection:
                    return connection.execute(query).all()
            except DatabaseError as error:
                if not self.gone(error) or attempt == RECONNECTS:
                    raise self.unavailable(error) from error
                self.lost(attempt)
        raise AssertionError("unreachable")

    def lost(self, attempt: int) -> None:
        """Drop the connections, which are lost together, and wait: longer each time."""
        self.close()
        time.sleep(0.1 * 2**attempt)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """The database's errors inside become StoreUnavailableError."""
        try:
            yield
        except DatabaseError as error:
            raise self.unavailable(error) from error

    def unavailable(self, error: Exception) -> StoreUnavailableError:
        """The error that users see."""
        return StoreUnavailableError(self.name, str(getattr(error, "orig", error)).strip())

    def close(self) -> None:
        """Give the connections back. Whoever uses it again gets new ones."""
        self.engine.dispose()


def _wrapped(error: Exception, dialect: Dialect, lost: bool) -> Exception:
    """A driver's error as SQLAlchemy would raise it."""
    base = dialect.loaded_dbapi.Error
    return DBAPIError.instance(
        "append", None, error, base, connection_invalidated=lost, dialect=dialect
    )
