"""Records of the dispatcher: runs, tasks under way, measures, the service that users received."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import delete, insert, select
from sqlmodel import Field, SQLModel

from events.database import Database


class ReceivedRow(SQLModel, table=True):
    """The table of the service that users have received, for the next dispatcher."""

    __tablename__ = "received"  # pyright: ignore[reportAssignmentType]

    owner: str = Field(primary_key=True)
    tag: float


RECEIVED = ReceivedRow.__table__  # pyright: ignore[reportAttributeAccessIssue]


@dataclass
class Known:
    """A run that has not ended, as the dispatcher knows it."""

    owner: str
    order: int
    priority: int
    labels: tuple[str, ...]
    device: str
    paused: bool = False
    #: Number of tasks that no device has; a guess for a run that was not folded yet.
    pending: int = 1
    #: When a task of the run began to wait or was last begun, by the monotonic clock.
    since: float = field(default_factory=time.monotonic)


@dataclass
class Flight:
    """A task that was granted to a device."""

    run: str
    task: str
    owner: str
    began: float
    #: True while the scheduler counts the task as under way.
    counts: bool = True

    def unclaimed(self, held: dict[str, str], seconds: float) -> bool:
        """Return True if no lease holds the task `seconds` after its grant."""
        late = time.monotonic() - self.began > seconds
        return late and f"{self.run}/{self.task}" not in held


@dataclass
class Measures:
    """The dispatcher's measures for Prometheus."""

    waiting: int = 0
    oldest: float = 0.0
    expired: int = 0
    decisions: int = 0
    leads: bool = False
    #: Time of the last look, by the monotonic clock.
    looked: float = 0.0

    def look(self, runs: Iterable[Known]) -> None:
        """Count waiting tasks, at most once a second because it looks at every run."""
        now = time.monotonic()
        if now - self.looked < 1.0:
            return
        self.looked = now
        waiting = [run for run in runs if run.pending and not run.paused]
        self.waiting = sum(run.pending for run in waiting)
        self.oldest = max((now - run.since for run in waiting), default=0.0)


@dataclass
class Backoff:
    """The number of times that a task came back undone, and the time until its next grant."""

    count: int = 0
    until: float = 0.0


class Received:
    """Access to the table of received service, which may be dropped: shares then start from zero."""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.explained(), database.migrating() as connection:
            RECEIVED.create(connection, checkfirst=True)

    def read(self) -> dict[str, float]:
        """Return owner → tag."""
        rows = self._database.rows(select(RECEIVED))
        return {row.owner: row.tag for row in rows}

    def write(self, tags: dict[str, float]) -> None:
        """Replace all tags in the table."""
        with self._database.explained(), self._database.writing() as connection:
            connection.execute(delete(RECEIVED))
            if tags:
                rows = [{"owner": owner, "tag": tag} for owner, tag in tags.items()]
                connection.execute(insert(RECEIVED), rows)
