"""The log, and runs folded: what routes read. Safe to use from several threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import Any

from api.rehearsals import Rehearsals
from events import Envelope
from evomerge.run import repository
from evomerge.run.history import at_place
from evomerge.run.state import RunState, absorb, fold
from runs.home import Home
from worker.queue.device_table import Roster
from worker.queue.leases import Leases

#: Runs, and past states of runs, that are kept folded.
KEPT = 64


class _Folded:
    """A run's state, and the lock under which it goes on."""

    def __init__(self) -> None:
        self.state = RunState()
        self.lock = threading.Lock()
        #: View → what it said at which version.
        self.views: dict[str, tuple[int, Any]] = {}


class Desk:
    """One process's view of the log."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.store = home.open_store()
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Folded] = OrderedDict()
        self._past: OrderedDict[tuple[str, int], RunState] = OrderedDict()

    def name(self, run: str) -> str:
        """The run's whole name. Raises NotFoundError."""
        with self._lock:
            if run in self._runs:
                return run
        return repository.full_name(self.store, run)

    @contextmanager
    def state(self, run: str, at: int | None = None) -> Iterator[RunState]:
        """A run's state as it is, or as it was after `at` events; not to be changed, nor kept.

        Raises NotFoundError, and ConfigError for a place inside of an append.
        """
        folded = self._folded(run)
        with folded.lock:
            try:
                absorb(folded.state, repository.news(self.store, run, folded.state), showing=True)
            except BaseException:  # half a fold is none
                folded.state, folded.views = RunState(), {}
                raise
            now = folded.state
            if at is None or at == now.place:
                yield now
                return
        yield self._at(run, at)

    def _folded(self, run: str) -> _Folded:
        with self._lock:
            folded = self._runs.pop(run, None) or _Folded()
            self._runs[run] = folded
            while len(self._runs) > KEPT:
                self._runs.popitem(last=False)
            return folded

    def _at(self, run: str, at: int) -> RunState:
        with self._lock:
            if (run, at) in self._past:
                self._past.move_to_end((run, at))
                return self._past[run, at]
        rows = list(repository.history(self.store, run))
        state = fold(rows[: at_place(rows, at)], showing=True)
        with self._lock:
            self._past[run, at] = state
            while len(self._past) > KEPT:
                self._past.popitem(last=False)
        return state

    def events(
        self, run: str, after: int = 0, before: int | None = None, limit: int = 200
    ) -> tuple[list[tuple[int, Envelope]], int]:
        """(place, row) of a stretch of a run's history, and how many events it has.

        With `before`, the last ones in front of it, the newest first.
        """
        with self.state(run) as state:
            total, own = state.place, state.version
        past = total - own
        if before is not None:
            end = min(max(before - 1, 0), total)
            start = max(0, end - limit)
        else:
            start, end = min(after, total), min(after + limit, total)
        found: list[tuple[int, Envelope]] = []
        if start < past:  # what a fork shares with others
            rows = islice(repository.history(self.store, run), start, min(end, past))
            found += enumerate(rows, start + 1)
        if end > past:
            first = max(start, past) - past
            rows = self.store.iterate(repository.stream(run), after=first, upto=end - past)
            found += enumerate(rows, past + first + 1)
        return (found[::-1] if before is not None else found), total

    def seen(self, run: str, view: str, state: RunState, make: Any) -> Any:
        """A view of the newest state, made once for each version of the run."""
        folded = self._folded(run)
        known = folded.views.get(view)
        if known is None or known[0] != state.version:
            known = folded.views[view] = state.version, make(state)
        return known[1]

    @cached_property
    def roster(self) -> Roster:
        """The table of devices."""
        return Roster(self.store.database)

    @cached_property
    def leases(self) -> Leases:
        """The table of leases."""
        return Leases(self.store.database)

    @cached_property
    def rehearsals(self) -> Rehearsals:
        """The count of each run's tasks."""
        return Rehearsals()

    def end(self) -> int:
        """The position of the newest event."""
        return self.store.end()

    def close(self) -> None:
        """Give the connections back."""
        if "rehearsals" in self.__dict__:
            self.rehearsals.close()
        self.store.close()
