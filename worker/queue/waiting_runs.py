"""Runs that have not ended, as the dispatcher knows them from the log."""

from __future__ import annotations

from events import Envelope, Event, EventStore
from runs import imported_pasts, kinds
from runs.history.repository import load
from runs.lists import queries
from runs.record import events, user_events
from worker.queue.bookkeeping import Known


class WaitingRuns(dict[str, Known]):
    """Run → what the dispatcher knows of it, for every run that has not ended."""

    def __init__(self, store: EventStore) -> None:
        super().__init__()
        self._store = store
        #: Chain heads of runs that were imported only as the past of a fork.
        self._pasts: frozenset[str] = frozenset()

    def read(self) -> None:
        """Read all runs that have not ended from the list of runs, and the pasts of forks."""
        self.read_pasts()
        for row in queries.queue(self._store):
            labels = tuple(row["labels"].split())
            self[row["run"]] = Known(
                row["owner"],
                row["first"],
                row["priority"],
                labels,
                row["device"],
                row["paused"] or row["past"],
            )

    def read_pasts(self) -> None:
        """Read which runs were imported only as the past of a fork."""
        self._pasts = imported_pasts.heads(self._store)

    def add(self, run: str, row: Envelope) -> None:
        """Add a run that is new in the log, by its first event."""
        event = _event(row)
        if isinstance(event, events.Submitted):
            self[run] = Known(
                event.owner, row.position, event.priority, event.labels, event.config.device
            )
        else:
            self.add_again(run, row.position)

    def add_again(self, run: str, order: int) -> None:
        """Add a run whose whole history is needed: a fork, or a run that is retried or imported.

        `order` is the run's place among the runs of equal priority. A run that has ended is left out.
        """
        state = load(self._store, run)
        submission = state.submitted
        assert submission is not None
        if not state.ended:
            self[run] = Known(
                submission.owner,
                order,
                state.priority,
                submission.labels,
                state.device,
                state.paused,
            )

    def apply(self, run: str, row: Envelope) -> None:
        """Apply what an event of a run changes: its pause or its priority."""
        entry = self[run]
        if row.type in (user_events.Paused.type, user_events.Resumed.type):
            entry.paused = row.type == user_events.Paused.type
            entry.pending = 1
        if row.type == user_events.PriorityChanged.type:
            event = _event(row)
            assert isinstance(event, user_events.PriorityChanged)
            entry.priority = event.priority
        if row.hash in self._pasts:
            entry.paused = True


def _event(row: Envelope) -> Event:
    """Return a row's event, by the registry of its run's kind."""
    kind = kinds.kind_of(row.stream)
    assert kind
    return kind.state.registry.load(row)
