"""Leases: which process works on which task.

The table is not the truth: it may be dropped at any time. A claim is a conditional write that
raises the fence number. A lease holds until it expires without a heartbeat, by the database's
clock, or until its owner is known to be dead (by pid and start time, on the same machine). Two
holders at once are harmless: both append under one idempotency key, and the first append wins.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, Executable, Float, delete, insert, literal_column, select, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import Field, SQLModel

from agent_forge.events import StoreUnavailableError, failpoints
from agent_forge.events.database import Database
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system import pace

log = logging.getLogger(__name__)


class LeaseRow(SQLModel, table=True):
    """The table of leases."""

    __tablename__ = "leases"  # pyright: ignore[reportAssignmentType]

    task: str = Field(primary_key=True)
    owner: str = Field(index=True)
    fence: int
    expires: float


class PaceRow(SQLModel, table=True):
    """The table of paces: what the holder of a lease last said of its task, in words."""

    __tablename__ = "paces"  # pyright: ignore[reportAssignmentType]

    task: str = Field(primary_key=True)
    words: str


PACES = PaceRow.__table__  # pyright: ignore[reportAttributeAccessIssue]
LEASES = LeaseRow.__table__  # pyright: ignore[reportAttributeAccessIssue]


def lifetime() -> float:
    """Return the seconds that a lease lasts without a heartbeat, by FORGE_LEASE_SECONDS.

    The default is 60. Raises ConfigError outside of 0.5 to 3600.
    """
    setting = os.environ.get("FORGE_LEASE_SECONDS", "60")
    try:
        seconds = float(setting)
    except ValueError:
        seconds = 0.0
    if not 0.5 <= seconds <= 3600:
        raise ConfigError(f"FORGE_LEASE_SECONDS is {setting!r}: give seconds between 0.5 and 3600.")
    return seconds


def _started(pid: int) -> str:
    """Return a process's start, ticks since boot, as text; "dead" if a zombie, "" if unknown.

    Return "dead" for a zombie: a process that has ended but that its parent has not waited for.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "dead" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


@cache
def here() -> str:
    """Return the name of the place in which pids are unique: host, pid namespace and boot id."""
    try:
        space = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        space = ""
    try:  # machines that were cloned may share a name
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}:{space}:{boot}"


def myself(name: str | None = None) -> str:
    """Return this process's name in leases: "PLACE/PID/START/NAME".

    Because of the start time a reused pid is another owner. `name` tells apart several owners in one
    process; by default it is the thread's id.
    """
    pid = os.getpid()
    return owner_of(pid, name or str(threading.get_ident()))


def owner_of(pid: int, name: str) -> str:
    """Return a local process's name in leases, which `alive` can check: "PLACE/PID/START/NAME"."""
    return f"{here()}/{pid}/{_started(pid)}/{name}"


def alive(owner: str) -> bool | None:
    """Return True if a lease's owner lives, False if it has ended; None if it is on another machine."""
    place, pid, started, _ = owner.split("/", 3)
    if place != here():
        return None
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not started or _started(int(pid)) in (started, "")  # "": /proc hides other users


class Leases:
    """Claims on the tasks of runs, in the database of the log."""

    def __init__(self, database: Database, owner: str | None = None) -> None:
        self._database = database
        self._now = literal_column(database.clock, Float)
        self.lifetime = lifetime()
        #: Seconds between two heartbeats.
        self.beat = self.lifetime / 6
        self.owner = owner or myself()
        with database.explained(), database.migrating() as connection:
            LEASES.create(connection, checkfirst=True)
            PACES.create(connection, checkfirst=True)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Yield a connection in a transaction; its errors become StoreUnavailableError."""
        with self._database.explained(), self._database.writing() as connection:
            yield connection

    def claim(self, task: str, also: Executable | None = None) -> int | None:
        """Claim the task; return the fence number, or None if another owner holds the task.

        `also` is executed in the same transaction, which saves a second one.
        """
        query = select(LEASES, self._now.label("now")).where(LEASES.c.task == task)
        with self._writing() as connection:
            row = connection.execute(query).first()
            is_foreign = row is not None and row.owner != self.owner
            if row is not None and is_foreign and held(row.owner, row.expires, row.now):
                return None
            fence = self._take(connection, task, row.fence if row else None)
            if fence is not None and also is not None:
                connection.execute(also)
        if fence is not None:
            failpoints.hit("task-claimed")
        return fence

    def _take(self, connection: Connection, task: str, fence: int | None) -> int | None:
        """Write the claim; return its fence, or None if another owner has claimed since `fence`."""
        values = {"owner": self.owner, "expires": self._now + self.lifetime}
        if fence is None:
            try:
                with connection.begin_nested():
                    connection.execute(insert(LEASES).values(task=task, fence=1, **values))
            except IntegrityError:
                return None
            return 1
        fenced = (LEASES.c.task == task) & (LEASES.c.fence == fence)
        done = connection.execute(update(LEASES).where(fenced).values(fence=fence + 1, **values))
        return fence + 1 if done.rowcount == 1 else None

    def holds(self, task: str, fence: int, owner: str | None = None) -> bool:
        """Return True if the owner (by default this one) still has the task under this fence."""
        query = select(LEASES.c.fence, LEASES.c.owner).where(LEASES.c.task == task)
        rows = self._database.rows(query)
        return bool(rows) and tuple(rows[0]) == (fence, owner or self.owner)

    def held(self) -> dict[str, str]:
        """Return task → owner for every valid lease."""
        query = select(LEASES, self._now.label("now")).where(LEASES.c.owner > "")
        rows = self._database.rows(query)
        return {row.task: row.owner for row in rows if held(row.owner, row.expires, row.now)}

    def paces(self) -> dict[str, str]:
        """Return task → its pace in words, of the tasks whose holders have noted one."""
        return {row.task: row.words for row in self._database.rows(select(PACES))}

    def release(self, task: str, also: Executable | None = None) -> None:
        """Release the task, and execute `also` in the same transaction.

        The row stays with its fence number, so that the next claim gets a higher number.
        """
        own_lease = (LEASES.c.task == task) & (LEASES.c.owner == self.owner)
        with self._writing() as connection:
            connection.execute(update(LEASES).where(own_lease).values(owner="", expires=0.0))
            connection.execute(delete(PACES).where(PACES.c.task == task))
            if also is not None:
                connection.execute(also)

    def forget(self, run: str) -> None:
        """Delete the rows of a run that has ended."""
        its = LEASES.c.task.startswith(f"{run}/", autoescape=True)
        with self._writing() as connection:
            connection.execute(delete(LEASES).where(its))
            connection.execute(delete(PACES).where(PACES.c.task.startswith(f"{run}/", autoescape=True)))

    def renew(self, tasks: Collection[str], pace_words: str = "") -> None:
        """Extend this owner's leases on these tasks, and note the pace of the first in words.

        Raises StoreUnavailableError.
        """
        own_leases = LEASES.c.task.in_(list(tasks)) & (LEASES.c.owner == self.owner)
        with self._writing() as connection:
            connection.execute(
                update(LEASES).where(own_leases).values(expires=self._now + self.lifetime)
            )
            for task in list(tasks)[:1] if pace_words else ():
                connection.execute(delete(PACES).where(PACES.c.task == task))
                connection.execute(insert(PACES).values(task=task, words=pace_words))

    @contextmanager
    def heartbeat(self, *tasks: str) -> Iterator[None]:
        """Wrap a block: a thread of its own renews the leases meanwhile."""

        def beat() -> None:
            try:
                self.renew(tasks, pace.words())
            except StoreUnavailableError as error:  # the next beat may succeed
                log.warning("the lease on %s was not renewed: %s", ", ".join(tasks), error)

        with pace.repeated(beat, self.beat, "lease heartbeat"):
            yield


def held(owner: str, expires: float, now: float) -> bool:
    """Return True if a lease has an owner not known to be dead, and has not expired."""
    return bool(owner) and expires > now and alive(owner) is not False
