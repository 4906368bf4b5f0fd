"""Database that a log is stored in: connections, transactions and errors.

`databases/sqlite.py` and `databases/postgres.py` hold only the differences between SQLite and
PostgreSQL.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TypeVarTuple

from sqlalchemy import Connection, Dialect, Engine, Row
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DatabaseError, DBAPIError
from sqlalchemy.sql.selectable import TypedReturnsRows

from agent_forge.events.errors import StoreUnavailableError

Types = TypeVarTuple("Types")
#: Values of the columns of a row.
Values = tuple[str | int | None, ...]

#: Retries when the server goes away during an operation; the waits add up to about three seconds.
RECONNECTS = 5
#: Words of errors of a transaction that has ended by an earlier error.
_FOLLOWING = ("no such savepoint", "no transaction is active", "transaction is aborted")


class Database:
    """Database that holds a log: its connections, and how its kind of database is written to."""

    #: Statements that make the log's table append-only; safe to repeat.
    append_only: tuple[str, ...] = ()
    #: The placeholder of a parameter in the driver's statements.
    mark = "?"
    #: The database's own clock, SQL for seconds since 1970: machines need not agree on the time.
    clock = "((julianday('now') - 2440587.5) * 86400.0)"

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        #: For messages; never with a password.
        self.name = name

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """Yield a connection in a transaction that reads. Raises StoreUnavailableError."""
        with self.explained(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """Yield a connection in a transaction that writes: committed, or rolled back on error."""
        with self.engine.connect().execution_options(forge_write=True) as connection:
            with connection.begin():
                yield connection

    @contextmanager
    def appending(self, alone: bool = True) -> Generator[DBAPICursor]:
        """Yield a cursor in a transaction that appends: positions become visible in their order.

        From its beginning no other transaction appends; with `alone` false, from `insert_alone` on.
        The cursor is the driver's own, because SQLAlchemy's way to a cursor takes longer than all
        else in an append. The driver's errors are still raised as SQLAlchemy's errors.
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

    def begin_append(self, cursor: DBAPICursor) -> None:
        """Begin a transaction on the cursor; until its end no other transaction can append."""
        raise NotImplementedError

    @contextmanager
    def migrating(self) -> Generator[Connection]:
        """Yield a connection in a transaction that changes tables; others that do so wait."""
        with self.writing() as connection:
            yield connection

    def insert(
        self, cursor: DBAPICursor, statement: str, rows: Sequence[Values]
    ) -> Sequence[int | None]:
        """Insert rows of the log in order; return their positions, None for a row not inserted."""
        raise NotImplementedError

    def insert_alone(self, cursor: DBAPICursor, statement: str, row: Values) -> int | None:
        """Wait for other appends, insert one row, return its position; None if it was not inserted.

        For `appending(alone=False)`: on a server this takes one statement less.
        """
        self.begin_append(cursor)
        return self.insert(cursor, statement, [row])[0]

    def gone(self, error: DatabaseError) -> bool:
        """Return True if the error means that the server went away; here False: there is none."""
        return False

    def refuses_changes(self, connection: Connection) -> bool:
        """Return True if the guards of `append_only` are in place."""
        raise NotImplementedError

    def damage(self, connection: Connection) -> list[str]:
        """Return the problems that the database itself finds in its files, a line each; may be []."""
        raise NotImplementedError

    def last_position(self, connection: Connection) -> int | None:
        """Return the highest position ever committed, even if its row is gone; None if not known."""
        raise NotImplementedError

    def rows(self, query: TypedReturnsRows[*Types]) -> Sequence[Row[*Types]]:
        """Return a query's rows; retry if the server went away. Raises StoreUnavailableError."""
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
        """Close the connections, which are lost together, and sleep, longer with each attempt."""
        self.close()
        time.sleep(0.1 * 2**attempt)

    @contextmanager
    def explained(self) -> Generator[None]:
        """Turn database errors that are raised inside the `with` block into StoreUnavailableError."""
        try:
            yield
        except DatabaseError as error:
            raise self.unavailable(error) from error

    def unavailable(self, error: Exception) -> StoreUnavailableError:
        """Return the StoreUnavailableError that users see instead of a database's error."""
        return StoreUnavailableError(self.name, _first_reason(error))

    def close(self) -> None:
        """Close the connections. A later use opens new connections."""
        self.engine.dispose()


def _first_reason(error: BaseException) -> str:
    """Return an error's text; if it only follows from an earlier error, the earlier one's text.

    On a full disk SQLite rolls a transaction back by itself; then the end of its savepoint fails, too.
    """
    text = str(getattr(error, "orig", None) or error).strip()
    before = error.__cause__ or error.__context__
    follows = any(words in text for words in _FOLLOWING)
    return _first_reason(before) if follows and before is not None else text


def _wrapped(error: Exception, dialect: Dialect, lost: bool) -> Exception:
    """Return the SQLAlchemy exception for a driver's error."""
    base = dialect.loaded_dbapi.Error
    return DBAPIError.instance(
        "append", None, error, base, connection_invalidated=lost, dialect=dialect
    )
