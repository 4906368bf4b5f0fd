"""A database that a log lives in: connections, transactions and errors. What differs between SQLite
and PostgreSQL is in `sqlite.py` and `postgres.py`, nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError

from events.errors import StoreUnavailableError


class Database:
    """An engine, and how this kind of database is written to."""

    #: Statements that make the log's table append-only; safe to repeat.
    append_only: tuple[str, ...] = ()

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        #: For messages; never with a password.
        self.name = name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads. Raises StoreUnavailableError."""
        with self._explained(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes: committed at the end, rolled back where something is raised."""
        with self.engine.connect().execution_options(forge_write=True) as connection:
            with connection.begin():
                yield connection

    @contextmanager
    def appending(self) -> Iterator[Connection]:
        """A transaction that appends: positions are given out and become visible in one order."""
        with self.writing() as connection:
            yield connection

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A transaction that changes tables; nobody else does at the same time."""
        with self.writing() as connection:
            yield connection

    def gone(self, error: DatabaseError) -> bool:
        """Whether the server went away, so that trying again makes sense."""
        return False

    def refuses_changes(self, connection: Connection) -> bool:
        """Whether the guards of `append_only` are in place."""
        raise NotImplementedError

    def damage(self, connection: Connection) -> list[str]:
        """What the database itself finds wrong with its files."""
        raise NotImplementedError

    def last_position(self, connection: Connection) -> int:
        """The highest position that was ever given out, whether or not its row is still there."""
        raise NotImplementedError

    def rows(self, query: Any) -> Sequence[Any]:
        """All rows of a query. Raises StoreUnavailableError."""
        with self.reading() as connection:
            return connection.execute(query).all()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            raise self.unavailable(error) from error

    def unavailable(self, error: DatabaseError | OSError) -> StoreUnavailableError:
        """The error that users see."""
        return StoreUnavailableError(self.name, str(getattr(error, "orig", error)).strip())

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()
