"""The log, and runs folded: what routes read. Safe to use from several threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import Any

from agent_forge.events import Envelope
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.history import repository
from agent_forge.runs.history.run_cache import Journals, RunCache
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import finding
from agent_forge.worker.queue.device_table import Roster
from agent_forge.worker.queue.leases import Leases
from agent_forge.worker.queue.reporting.rehearsals import Rehearsals

#: Runs, and past states of runs, that are kept folded.
KEPT = 64


class Desk:
    """One process's view of the log."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.store = home.open_store()
        self.runs = RunCache(self.store, KEPT, showing=True)
        self.journals = Journals(self.store, self.runs, KEPT)
        #: (run, view) → what it said at which version.
        self._views: dict[tuple[str, str], tuple[tuple[int, Any], Any]] = {}

    def name(self, run: str) -> str:
        """Return the run's whole name. Raises NotFoundError."""
        return run if run in self.runs else finding.full_name(self.store, run)

    @contextmanager
    def state(self, run: str, at: int | None = None) -> Iterator[Any]:
        """Yield a run's state now, or after `at` events; the caller may not change or keep the state.

        Raises NotFoundError, and ConfigError for a place inside of an append.
        """
        with self.runs.reading(run, at) as state:
            yield state
        for dropped in self.runs.shrink():
            self._views = {key: view for key, view in self._views.items() if key[0] != dropped}

    def events(
        self, run: str, after: int = 0, before: int | None = None, limit: int = 200
    ) -> tuple[list[tuple[int, Envelope]], int]:
        """Return (place, row) of a part of a run's history, and the number of its events.

        With `before`, the last ones in front of it, the newest first.
        """
        with self.state(run) as state:
            total, version = state.place, state.version
        past = total - version
        if before is not None:
            end = min(max(before - 1, 0), total)
            start = max(0, end - limit)
        else:
            start, end = min(after, total), min(after + limit, total)
        placed_events: list[tuple[int, Envelope]] = []
        if start < past:  # what a fork shares with others
            rows = islice(repository.history(self.store, run), start, min(end, past))
            placed_events += enumerate(rows, start + 1)
        if end > past:
            first = max(start, past) - past
            stream = repository.named_stream(self.store, run)
            rows = self.store.iterate(stream, after=first, upto=end - past)
            placed_events += enumerate(rows, past + first + 1)
        return (placed_events[::-1] if before is not None else placed_events), total

    def seen(self, run: str, view: str, state: State, make: Any, more: Any = None) -> Any:
        """Return a view of the newest state, made once for each version of the run.

        `more` tells apart versions of what else the view shows.
        """
        entry, version = self._views.get((run, view)), (state.version, more)
        if entry is None or entry[0] != version:
            entry = self._views[run, view] = version, make(state)
        return entry[1]

    def place(self, run: str, at: int | None, upto: int | None) -> int | None:
        """Return the place that `at` or a position in the log means; None for neither.

        Raises ConfigError for both, and NotFoundError if the run had not begun at the position.
        """
        if at is not None and upto is not None:
            raise ConfigError("give `at` or `upto`, one of them: both name a moment of the past.")
        return at if upto is None else self.journals.place(run, upto)

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
        """Return the position of the newest event."""
        return self.store.end()

    def close(self) -> None:
        """Close the connections to the log."""
        if "rehearsals" in self.__dict__:
            self.rehearsals.close()
        self.store.close()
