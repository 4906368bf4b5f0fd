"""Database of a log in a SQLite file: journal, locks, guards and errors.

The journal is WAL with synchronous=FULL if the library is 3.51.3 or newer. Older libraries have a
rare corruption bug when two connections checkpoint a WAL together, so they use the rollback
journal: slower, but far above what a run needs. The rollback journal is truncated, not deleted, at
a commit: SQLite does not sync the folder after deleting the journal, and a power cut could bring
the journal back and undo what was acknowledged. Memory mapping is off. Files are made for
their owner alone: a reader of another user would keep all writers out.

Writers take their lock at BEGIN, so that a second writer waits instead of failing half-way. SQLite's
own waiting is a sleep that grows, so a busy writer starves the others; a writer here retries after
short sleeps of random length instead (docs/decisions/0012).

No code of a process that has a log open may open the log's file by itself: when the process closes
any descriptor of the file, the kernel drops all locks that SQLite holds on the file for it.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DatabaseError, OperationalError
from typing_extensions import override

from agent_forge.events import schema
from agent_forge.events.database import Database, Values
from agent_forge.events.store import EventStore

#: The first release without the WAL bug.
WAL_SAFE = (3, 51, 3)

#: Milliseconds that a writer waits for its lock, and that any statement waits for other locks.
BUSY_TIMEOUT_MS = 30_000
#: Shortest and longest sleep of a waiting writer between two attempts, in seconds.
RETRY_SLEEP = (0.001, 0.005)


def journal_mode(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> str:
    """Return the journal mode that is safe with this SQLite: "wal" or "truncate"."""
    return "wal" if version >= WAL_SAFE else "truncate"


class Sqlite(Database):
    """Database of a log in a SQLite file."""

    append_only = (
        """CREATE TRIGGER IF NOT EXISTS events_no_update BEFORE UPDATE ON events
           BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END""",
        """CREATE TRIGGER IF NOT EXISTS events_no_delete BEFORE DELETE ON events
           BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END""",
        # REPLACE deletes without the delete trigger unless a client asks for it: refuse the insert.
        """CREATE TRIGGER IF NOT EXISTS events_no_replace BEFORE INSERT ON events
           WHEN EXISTS (SELECT 1 FROM events WHERE position = NEW.position OR key = NEW.key
               OR event_id = NEW.event_id OR (stream = NEW.stream AND version = NEW.version))
           BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END""",
    )

    def __init__(self, path: Path) -> None:
        super().__init__(_engine(path), str(path))
        self._path = path

    @override
    def begin_append(self, cursor: DBAPICursor) -> None:
        """Begin with the lock that writers take. Raise if the file ends within a page."""
        _take_write_lock(cursor.execute)
        _refuse_torn(self._path, cursor.execute("PRAGMA page_size").fetchone()[0])

    @override
    def insert(self, cursor: DBAPICursor, statement: str, rows: Sequence[Values]) -> Sequence[int]:
        """Insert rows, several a statement, as threads take turns at each; return their positions."""
        another, done = statement.partition(" VALUES ")[2], 0
        for size in (64, 8, 1):
            while len(rows) - done >= size:
                values = [value for row in rows[done : done + size] for value in row]
                cursor.execute(statement + f", {another}" * (size - 1), values)
                done += size
        # AUTOINCREMENT counts by one under the write lock.
        return range(cursor.lastrowid - done + 1, cursor.lastrowid + 1)

    @override
    def refuses_changes(self, connection: Connection) -> bool:
        query = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'events'"
        return connection.exec_driver_sql(query).scalar() == len(self.append_only)

    @override
    def damage(self, connection: Connection) -> list[str]:
        lines = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        return [] if lines == ["ok"] else [str(line) for line in lines]

    @override
    def last_position(self, connection: Connection) -> int:
        """Return the highest position ever committed, as AUTOINCREMENT stores it; 0 before any."""
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
        return int(connection.exec_driver_sql(query).scalar() or 0)


def _refuse_torn(path: Path, page: int) -> None:
    """Raise DatabaseError if the file ends within a page: SQLite itself would go on writing.

    `page` is the size of a page in bytes. The file is not opened (see the module's docstring).
    """
    if path.stat().st_size % page:
        raise sqlite3.DatabaseError("database disk image is malformed: it ends within a page")


def _make_private(path: Path) -> None:
    """Create the file for its owner alone if it is missing; SQLite gives its journals the same mode."""
    with suppress(OSError):  # it exists, or SQLite reports the error when it opens the file
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _engine(path: Path) -> Engine:
    """Return an engine on the file, with the pragmas and the locking described above."""
    _make_private(path)
    engine = create_engine(
        URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin in _begin, not in the driver
        connection.text_factory = _text
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        cursor.execute(f"PRAGMA journal_mode={journal_mode()}")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA mmap_size=0")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("forge_write", False)
        if writes:
            _take_write_lock(connection.exec_driver_sql)
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _take_write_lock(execute: Callable[[str], object]) -> None:
    """Begin a transaction with the lock that writers take; wait for the lock with short sleeps.

    `execute` runs a statement on one connection. Raises SQLite's "database is locked" (as `execute`
    does) after BUSY_TIMEOUT_MS.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    execute("PRAGMA busy_timeout=0")  # or the first attempt would already be SQLite's own waiting
    try:
        while True:
            try:
                execute("BEGIN IMMEDIATE")
                return
            except (sqlite3.OperationalError, OperationalError) as error:
                if not _busy(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(random.uniform(*RETRY_SLEEP))
    finally:
        execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")


def _busy(error: sqlite3.OperationalError | OperationalError) -> bool:
    """Return True if SQLite reports another connection's lock: the same statement may succeed."""
    cause = error.orig if isinstance(error, OperationalError) else error
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _text(stored: bytes) -> str:
    """Return a stored text, decoded; bytes that are no UTF-8 become lone surrogates.

    So a damaged row can be read and named in an error. No hash and no event accepts the surrogates.
    """
    return stored.decode("utf-8", "surrogateescape")


def open_store(path: Path, attempts: int = 20) -> EventStore:
    """Return the store of the log in the file `path`; create file and tables if they are missing.

    Retries if other processes open the file meanwhile. Raises StoreUnavailableError, SchemaError.
    """
    for attempt in range(attempts):
        database = Sqlite(path)
        try:
            with database.engine.connect() as connection:
                page = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
            _refuse_torn(path, page)
            schema.prepare(database, upgrade=True)
            return EventStore(database)
        except (DatabaseError, sqlite3.DatabaseError, OSError) as error:
            database.close()
            locked = isinstance(error, OperationalError) and "locked" in str(error)
            if not locked or attempt + 1 == attempts:
                raise database.unavailable(error) from error
            time.sleep(0.05 * (attempt + 1))
        except BaseException:
            database.close()
            raise
    raise AssertionError("unreachable")
