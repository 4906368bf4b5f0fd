"""Database that a log is stored in: connections, transactions, group commits and errors.

`databases/sqlite.py` and `databases/postgres.py` hold only the differences between SQLite and
PostgreSQL.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, TypeVarTuple

from sqlalchemy import Connection, Engine, Row
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DatabaseError, DBAPIError
from sqlalchemy.sql.selectable import TypedReturnsRows

from agent_forge.events.errors import StoreUnavailableError

Types = TypeVarTuple("Types")
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
#: Values of the columns of a row.
Values = tuple[str | int | None, ...]

#: Retries when the server goes away during an operation; the waits add up to about three seconds.
RECONNECTS = 5
#: Most threads of a group. Share of a commit's time that a leader waits for them; its sleeps.
LARGEST, GATHER, NAP = 256, 0.25, 0.00005
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
    def appending(self) -> Generator[DBAPICursor]:
        """Yield a cursor in a transaction that appends: positions become visible in their order.

        From its beginning no other transaction appends. The cursor is the driver's own, because
        SQLAlchemy's way to a cursor takes longer than all else in an append. The driver's errors are
        still raised as SQLAlchemy's errors.
        """
        dialect, base, link = self.engine.dialect, self.engine.dialect.loaded_dbapi.Error, None
        try:
            link = self.engine.raw_connection()
            cursor = link.cursor()
            self.begin_append(cursor)
            yield cursor
            cursor.close()
            link.commit()
        except base as error:
            broken = link and link.dbapi_connection
            lost = link is None or dialect.is_disconnect(error, broken, None)
            if link and lost:
                link.invalidate(error)
            raise DBAPIError.instance(
                "append", None, error, base, connection_invalidated=lost, dialect=dialect
            ) from error
        except BaseException as error:
            if link and not isinstance(error, Exception):  # perhaps in the middle of a statement
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

    def insert(self, cursor: DBAPICursor, statement: str, rows: Sequence[Values]) -> Sequence[int]:
        """Insert rows of the log in order; return their positions."""
        raise NotImplementedError

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


@dataclass(eq=False)
class _Waiting(Generic[Item, Outcome]):
    """A thread's item, its outcome once it has one, and the queue that wakes the thread."""

    item: Item
    outcome: Outcome | Exception | None = None
    wake: SimpleQueue[None] = field(default_factory=SimpleQueue[None])


class GroupCommit(Generic[Item, Outcome]):
    """Commits that threads share: a thread that finds no other at it commits for all that wait.

    `commit` returns an outcome for each item, or raises the outcome of all. There are no threads but
    the callers': none to start, to close, or to miss in a forked process.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], Sequence[Outcome | Exception]]) -> None:
        self._commit = commit
        #: Process → its waiting threads and the lock of the one that leads: a fork has neither.
        self._lines: dict[int, tuple[deque[_Waiting[Item, Outcome]], threading.Lock]] = {}
        #: Sizes of the last two groups, and the seconds that the last one took.
        self._sizes, self._seconds = (1, 1), 0.0

    def share(self, item: Item) -> Outcome:
        """Return the item's outcome after this thread or another has committed it; or raise it."""
        line, leading = self._lines.setdefault(os.getpid(), (deque(), threading.Lock()))
        waiting = _Waiting[Item, Outcome](item)
        line.append(waiting)
        try:
            while waiting.outcome is None:
                if leading.acquire(blocking=False):
                    try:
                        if waiting.outcome is None:
                            self._lead(line)
                    finally:
                        leading.release()
                        with suppress(IndexError):
                            line[0].wake.put(None)  # this thread leads next
                else:
                    with suppress(Empty):  # by itself, because the leader may be interrupted
                        waiting.wake.get(timeout=0.2)
        except BaseException:
            with suppress(ValueError):
                line.remove(waiting)
            raise
        if isinstance(waiting.outcome, Exception):
            raise waiting.outcome
        return waiting.outcome

    def _lead(self, line: deque[_Waiting[Item, Outcome]]) -> None:
        """Commit for the threads that wait in the line, and wake them."""
        began, group = time.monotonic(), list[_Waiting[Item, Outcome]]()
        while len(line) < max(self._sizes) and time.monotonic() - began < self._seconds * GATHER:
            time.sleep(NAP)  # threads that come at once would otherwise wait for two commits
        try:
            while line and len(group) < LARGEST:
                group.append(line.popleft())
            outcomes = self._outcomes([waiting.item for waiting in group])
            for waiting, outcome in zip(group, outcomes, strict=True):
                waiting.outcome = outcome
                waiting.wake.put(None)
        except BaseException:  # interrupted: another thread commits for those that are left
            line.extendleft(w for w in reversed(group) if w.outcome is None)
            raise
        self._sizes, self._seconds = (self._sizes[1], len(group)), time.monotonic() - began

    def _outcomes(self, items: Sequence[Item]) -> Sequence[Outcome | Exception]:
        """Return the items' outcomes; after an error commit each alone, if that takes no long waits."""
        began = time.monotonic()
        try:
            return self._commit(items)
        except Exception as error:
            waited = isinstance(error, StoreUnavailableError) and time.monotonic() - began > 1
            if waited or len(items) == 1:
                return [error] * len(items)
            return [outcome for item in items for outcome in self._outcomes([item])]


def _first_reason(error: BaseException) -> str:
    """Return an error's text; if it only follows from an earlier error, the earlier one's text.

    On a full disk SQLite rolls a transaction back by itself; then the end of its savepoint fails, too.
    """
    text = str(getattr(error, "orig", None) or error).strip()
    before = error.__cause__ or error.__context__
    follows = any(words in text for words in _FOLLOWING)
    return _first_reason(before) if follows and before is not None else text
