"""Records of the dispatcher: waiting runs, granted tasks, measures, service received by users."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import delete, insert, select
from sqlmodel import Field, SQLModel

from agent_forge.events import Envelope, Event, EventStore
from agent_forge.events.database import Database
from agent_forge.runs import kinds
from agent_forge.runs.history import repository
from agent_forge.runs.history.repository import load
from agent_forge.runs.lists import queries
from agent_forge.runs.record import events


class ReceivedRow(SQLModel, table=True):
    """The table of the service that users have received, for the next dispatcher."""

    __tablename__ = "received"  # pyright: ignore[reportAssignmentType]

    owner: str = Field(primary_key=True)
    tag: float


RECEIVED = ReceivedRow.__table__  # pyright: ignore[reportAttributeAccessIssue]


@dataclass
class ActiveRun:
    """The dispatcher's record of a run that has not ended."""

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
        """Return True if no lease holds the task although `seconds` have passed since its grant."""
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

    def look(self, runs: Iterable[ActiveRun]) -> None:
        """Count waiting tasks, at most once a second because each run is looked at."""
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


class ServiceTable:
    """Access to the table of received service, which may be dropped: shares then start from zero."""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.explained(), database.migrating() as connection:
            RECEIVED.create(connection, checkfirst=True)

    def read(self) -> dict[str, float]:
        """Return owner → tag: the service received over the owner's weight (`scheduler.py`)."""
        rows = self._database.rows(select(RECEIVED))
        return {row.owner: row.tag for row in rows}

    def write(self, tags: dict[str, float]) -> None:
        """Replace all tags in the table."""
        with self._database.explained(), self._database.writing() as connection:
            connection.execute(delete(RECEIVED))
            if tags:
                rows = [{"owner": owner, "tag": tag} for owner, tag in tags.items()]
                connection.execute(insert(RECEIVED), rows)


class WaitingRuns(dict[str, ActiveRun]):
    """Run → its record, for every run that has not ended."""

    def __init__(self, store: EventStore) -> None:
        super().__init__()
        self._store = store
        #: Chain heads of runs that were imported only as the past of a fork.
        self._pasts: frozenset[str] = frozenset()

    def read(self) -> None:
        """Add all runs that the run list shows as not ended, after reading the pasts of forks."""
        self.read_pasts()
        for row in queries.queue(self._store):
            labels = tuple(row["labels"].split())
            self[row["run"]] = ActiveRun(
                row["owner"],
                row["first"],
                row["priority"],
                labels,
                row["device"],
                row["paused"] or row["past"],
            )

    def read_pasts(self) -> None:
        """Read the chain heads of runs that were imported only as the past of a fork."""
        self._pasts = repository.heads(self._store)

    def add(self, run: str, row: Envelope) -> None:
        """Add a run that is new in the log, by the row of its first event."""
        event = _event(row)
        if isinstance(event, events.Submitted):
            self[run] = ActiveRun(
                event.owner, row.position, event.priority, event.labels, event.config.device
            )
        else:
            self.add_again(run, row.position)

    def add_again(self, run: str, order: int) -> None:
        """Add a run by its whole history: a fork, or a run that is retried or imported.

        `order` is the run's place among the runs of equal priority. A run that has ended is left out.
        """
        state = load(self._store, run)
        submission = state.submitted
        assert submission is not None
        if not state.ended:
            self[run] = ActiveRun(
                submission.owner, order, state.priority, submission.labels, state.device, state.paused
            )

    def apply(self, run: str, row: Envelope) -> None:
        """Apply an event to the run's record: pause, resume, priority."""
        entry = self[run]
        if row.type in (events.Paused.type, events.Resumed.type):
            entry.paused = row.type == events.Paused.type
            entry.pending = 1
        if row.type == events.PriorityChanged.type:
            event = _event(row)
            assert isinstance(event, events.PriorityChanged)
            entry.priority = event.priority
        if row.hash in self._pasts:
            entry.paused = True


def _event(row: Envelope) -> Event:
    """Return a row's event, by the registry of its run's kind."""
    kind = kinds.kind_of(row.stream)
    assert kind
    return kind.state.registry.load(row)
