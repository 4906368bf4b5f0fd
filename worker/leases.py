"""Leases: who works on which task. Not truth: the table may be dropped at any time.

A claim is a conditional write that raises the fence number. It is held while its owner lives (asked
by pid and start time, on the same machine) or, from elsewhere, until it expires without a heartbeat.
Two holders at once are harmless: both append under one idempotency key, and the first wins.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlmodel import Field, SQLModel

from events import failpoints
from events.database import Database

log = logging.getLogger(__name__)

LIFETIME = 60.0
HEARTBEAT = 10.0


class LeaseRow(SQLModel, table=True):
    """The table of leases."""

    __tablename__ = "leases"  # pyright: ignore[reportAssignmentType]

    task: str = Field(primary_key=True)
    owner: str
    fence: int
    expires: float


LEASES = LeaseRow.__table__  # pyright: ignore[reportAttributeAccessIssue]


def _started(pid: int) -> str:
    """When a process started, in the kernel's own unit; empty where that cannot be known.

    "dead" for one that was killed and that nobody has waited for yet.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "dead" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


def myself() -> str:
    """Our own process: host, pid and start time, so that a reused pid is another owner."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{pid}/{_started(pid)}/{threading.get_ident()}"


def alive(owner: str) -> bool | None:
    """Whether a lease's owner lives; None where it is on another machine."""
    host, pid, started, _ = owner.split("/")
    if host != socket.gethostname():
        return None
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not started or _started(int(pid)) == started


class Leases:
    """Claims on the tasks of runs, in the database of the log."""

    def __init__(self, database: Database, owner: str | None = None) -> None:
        self._database = database
        self.owner = owner or myself()
        with database.explained(), database.migrating() as connection:
            LEASES.create(connection, checkfirst=True)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction whose failure is said like one of the log. Raises StoreUnavailableError."""
        with self._database.explained(), self._database.writing() as connection:
            yield connection

    def claim(self, task: str) -> bool:
        """Take the task unless somebody alive has it."""
        now = time.time()
        values = {"owner": self.owner, "expires": now + LIFETIME}
        with self._writing() as connection:
            row = connection.execute(select(LEASES).where(LEASES.c.task == task)).first()
            if row is not None and row.owner != self.owner and _held(row.owner, row.expires, now):
                return False
            if not self._take(connection, task, row.fence if row else None, values):
                return False
        failpoints.hit("task-claimed")
        return True

    def _take(self, connection: Connection, task: str, fence: int | None, values: dict) -> bool:
        """Write the claim, unless somebody has claimed since the fence was read."""
        if fence is None:
            try:
                with connection.begin_nested():
                    connection.execute(insert(LEASES).values(task=task, fence=1, **values))
            except IntegrityError:
                return False
            return True
        fenced = (LEASES.c.task == task) & (LEASES.c.fence == fence)
        done = connection.execute(update(LEASES).where(fenced).values(fence=fence + 1, **values))
        return done.rowcount == 1

    def release(self, task: str) -> None:
        """Give the task back. The row stays, with its fence: the next claim gets a higher one."""
        mine = (LEASES.c.task == task) & (LEASES.c.owner == self.owner)
        with self._writing() as connection:
            connection.execute(update(LEASES).where(mine).values(owner="", expires=0.0))

    def forget(self, run: str) -> None:
        """Drop the rows of a run that has ended."""
        its = LEASES.c.task.startswith(f"{run}/", autoescape=True)
        with self._writing() as connection:
            connection.execute(delete(LEASES).where(its))

    @contextmanager
    def heartbeat(self, task: str) -> Iterator[None]:
        """Keep the lease alive from a thread of its own while the work is done."""
        done = threading.Event()

        def beat() -> None:
            mine = (LEASES.c.task == task) & (LEASES.c.owner == self.owner)
            while not done.wait(HEARTBEAT):
                try:
                    with self._database.writing() as connection:
                        later = time.time() + LIFETIME
                        connection.execute(update(LEASES).where(mine).values(expires=later))
                except DatabaseError as error:  # the next beat may succeed; the log decides anyway
                    log.warning("the lease on %s was not renewed: %s", task, error.orig)

        thread = threading.Thread(target=beat, name="lease heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _held(owner: str, expires: float, now: float) -> bool:
    if not owner:
        return False
    living = alive(owner)
    return expires > now if living is None else living
