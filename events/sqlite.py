"""What is particular to SQLite.

WAL with synchronous=FULL where the library is 3.51.3 or newer. Older ones have a rare corruption
bug when two connections checkpoint a WAL together, so there the rollback journal is used: a few
hundred commits a second, far above what a run needs. No memory mapping. Writers take their lock at
BEGIN, so that two of them queue instead of failing half-way.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError

from events.errors import StoreUnavailableError
from events.store import EVENTS, EventStore

#: The first release without the WAL bug.
WAL_SAFE = (3, 51, 3)

BUSY_TIMEOUT_MS = 30_000

_APPEND_ONLY = (
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


def journal_mode(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> str:
    """The journal mode that is safe with this SQLite: "wal" or "delete"."""
    return "wal" if version >= WAL_SAFE else "delete"


def create(path: Path) -> Engine:
    """An engine on the file, with the pragmas and the locking described above."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_TIMEOUT_MS / 1000},
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say, see _begin
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


def open_store(path: Path, attempts: int = 20) -> EventStore:
    """Open, and where needed create, the log in the file `path`.

    Retries while other processes open it at the same time. Raises StoreUnavailableError.
    """
    for attempt in range(attempts):
        engine = create(path)
        try:
            with engine.connect().execution_options(forge_write=True) as connection:
                with connection.begin():
                    EVENTS.create(connection, checkfirst=True)
                    for trigger in _APPEND_ONLY:
                        connection.exec_driver_sql(trigger)
            return EventStore(engine)
        except (DatabaseError, OSError) as error:
            engine.dispose()
            locked = "locked" in str(error)
            if not locked or attempt + 1 == attempts:
                why = str(getattr(error, "orig", error))
                raise StoreUnavailableError(str(path), why) from error
            time.sleep(0.05 * (attempt + 1))
    raise AssertionError("unreachable")
