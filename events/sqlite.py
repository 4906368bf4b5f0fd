"""What is particular to SQLite.

WAL with synchronous=FULL where the library is 3.51.3 or newer. Older ones have a rare corruption
bug when two connections checkpoint a WAL together, so there the rollback journal is used: slower, but
far above what a run needs. It is truncated, not deleted, at a commit: SQLite does not sync the folder
after deleting it, and a power cut could bring it back and with it undo what was acknowledged. No
memory mapping. Writers take their lock at
BEGIN, so that two of them queue instead of failing half-way, and take turns (`fair_lock.py`).
Files are made for their owner alone: a reader of another user would keep all writers out.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, OperationalError

from events import schema
from events.database import Database
from events.fair_lock import Turnstile
from events.store import EventStore

#: The first release without the WAL bug.
WAL_SAFE = (3, 51, 3)

BUSY_TIMEOUT_MS = 30_000


def journal_mode(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> str:
    """The journal mode that is safe with this SQLite: "wal" or "truncate"."""
    return "wal" if version >= WAL_SAFE else "truncate"


class Sqlite(Database):
    """A log in a file."""

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
        self._turnstile = Turnstile(path)
        self._path = path

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes, when it is our turn."""
        with self._turnstile.turn(), super().writing() as connection:
            yield connection

    @contextmanager
    def appending(self, alone: bool = True) -> Iterator[Any]:
        """A transaction that appends, when it is our turn."""
        with self._turnstile.turn(), super().appending(alone) as cursor:
            yield cursor

    def begin_append(self, cursor: Any) -> None:
        """Begin with the lock that writers take; never behind a torn end."""
        cursor.execute("BEGIN IMMEDIATE")
        _refuse_torn(self._path)

    def insert(
        self, cursor: Any, statement: str, rows: Sequence[tuple[Any, ...]]
    ) -> Sequence[int | None]:
        """One by one: there is no way to a server and back."""
        positions = []
        for row in rows:
            cursor.execute(statement, row)
            positions.append(cursor.lastrowid if cursor.rowcount else None)
        return positions

    def close(self) -> None:
        """Give the connections and the turnstile's files back."""
        super().close()
        self._turnstile.close()

    def refuses_changes(self, connection: Connection) -> bool:
        """Whether the three triggers are there."""
        query = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'events'"
        return connection.exec_driver_sql(query).scalar() == len(self.append_only)

    def damage(self, connection: Connection) -> list[str]:
        """What `PRAGMA integrity_check` says."""
        found = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        return [] if found == ["ok"] else [str(line) for line in found]

    def last_position(self, connection: Connection) -> int:
        """SQLite keeps it for AUTOINCREMENT."""
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
        return int(connection.exec_driver_sql(query).scalar() or 0)


def _refuse_torn(path: Path) -> None:
    """Raise where the file ends in the middle of a page: SQLite itself would write on behind it."""
    with path.open("rb") as file:
        header = file.read(18)
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    ours = header.startswith(b"SQLite format 3") and len(header) == 18
    if ours and page and path.stat().st_size % page:
        raise sqlite3.DatabaseError("database disk image is malformed: it ends within a page")


def _make_private(path: Path) -> None:
    """Create the file for its owner alone if it is missing; SQLite gives its journals the same mode."""
    with suppress(OSError):  # there already; what is wrong SQLite says when it opens the file
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _engine(path: Path) -> Engine:
    """An engine on the file, with the pragmas and the locking described above."""
    _make_private(path)
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_TIMEOUT_MS / 1000},
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say, see _begin
        connection.text_factory = _text
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        cursor.execute(f"PRAGMA journal_mode={journal_mode()}")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA mmap_size=0")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        writes = connection.get_execution_options().get("forge_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _text(stored: bytes) -> str:
    """Decode a text of the database.

    A row that somebody damaged must be readable, so that it can be named: bytes that are no UTF-8
    become lone surrogates, which no hash and no event accepts.
    """
    return stored.decode("utf-8", "surrogateescape")


def open_store(path: Path, attempts: int = 20) -> EventStore:
    """Open, and where needed create, the log in the file `path`.

    Retries while other processes open it at the same time. Raises StoreUnavailableError and
    SchemaError.
    """
    for attempt in range(attempts):
        database = Sqlite(path)
        try:
            if path.is_file():
                _refuse_torn(path)
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
