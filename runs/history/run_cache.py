"""Runs folded from the log, and kept while they are used: new events are folded in, not all again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from events import Envelope
from runs import kinds
from runs.history import children, repository
from runs.history.places import at_place
from runs.history.repository import Log


class _Folded:
    """A run's state, and the lock under which it goes on."""

    def __init__(self) -> None:
        self.state: Any = None
        self.lock = threading.RLock()


class RunCache:
    """The states of the runs that were used last. Safe to use from several threads."""

    def __init__(self, log: Log, size: int = 64, showing: bool = False) -> None:
        """Keep at most `size` runs, and as many past states.

        `showing` skips events that a newer version wrote; nothing may be decided from such a state.
        """
        self._log = log
        self._size = size
        self._showing = showing
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Folded] = OrderedDict()
        self._past: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._called: dict[str, Mapping[str, str]] = {}

    def __contains__(self, run: str) -> bool:
        """Return True if the run is kept."""
        folded = self._runs.get(run)
        return folded is not None and folded.state is not None

    def __len__(self) -> int:
        """Return the number of runs that are kept."""
        return len(self._runs)

    def known(self, run: str) -> Any:
        """Return the run's state as it was last brought up to date; None if it is not kept."""
        folded = self._runs.get(run)
        return None if folded is None else folded.state

    def refresh(self, run: str) -> tuple[Any, list[Envelope]]:
        """Return the run's state, up to date, and the events that were new.

        The state goes on with the next call: a caller that keeps it sees later events. Raises
        NotFoundError for an unknown run, and the errors of reading and folding; then the run is
        forgotten, because half a fold has no meaning.
        """
        folded = self._folded(run)
        with folded.lock:
            try:
                if folded.state is None:
                    folded.state, rows = repository.opened(self._log, run, self._showing)
                else:
                    rows = repository.news(self._log, folded.state)
                    folded.state.absorb(rows, self._showing)
            except BaseException:
                self.forget(run)
                raise
            return folded.state, rows

    def get(self, run: str) -> Any:
        """Return the run's state, up to date. Raises what `refresh` raises."""
        return self.refresh(run)[0]

    @contextmanager
    def reading(self, run: str, at: int | None = None) -> Iterator[Any]:
        """Give the run's state, now or after `at` events, which no other thread carries on.

        The state is not to be changed, nor kept. Raises NotFoundError, and ConfigError for a place
        inside of an append.
        """
        folded, called = self._folded(run), self._names(run)
        with folded.lock:
            now = self.get(run)
            now.called = called
            if at is None or at == now.place:
                yield now
                return
        past = self._at(run, at)
        past.called = called
        yield past

    def _names(self, run: str) -> Mapping[str, str]:
        """Return digest → PHASE or PHASE:ROLE, of models of the run that this run is a task of."""
        if self._showing and run not in self._called:
            parent, names = run.rpartition(".")[0], dict[str, str]()
            if parent and repository.stream_of(self._log, parent) is not None:
                with self.reading(parent) as state:
                    if children.is_child(self._log, state, run):
                        for _, end in kinds.of(state.kind).children(state):
                            phase, models = getattr(end, "name", ""), getattr(end, "models", {})
                            for role, model in models.items():
                                name = phase if len(models) == 1 else f"{phase}:{role}"
                                names.setdefault(model.digest, name)
            self._called[run] = names
        return self._called.get(run, {})

    def _at(self, run: str, at: int) -> Any:
        with self._lock:
            if (run, at) in self._past:
                self._past.move_to_end((run, at))
                return self._past[run, at]
        rows = list(repository.history(self._log, run))
        state = repository.fold(rows[: at_place(rows, at)], self._showing)
        with self._lock:
            self._past[run, at] = state
            while len(self._past) > self._size:
                self._past.popitem(last=False)
        return state

    def _folded(self, run: str) -> _Folded:
        with self._lock:
            folded = self._runs.setdefault(run, _Folded())
            self._runs.move_to_end(run)
            return folded

    def forget(self, run: str) -> None:
        """Keep the run's state no longer."""
        with self._lock:
            self._runs.pop(run, None)

    def shrink(self, busy: Collection[str] = ()) -> list[str]:
        """Drop the longest unused runs beyond the size, those in `busy` last; return the dropped."""
        dropped = []
        with self._lock:
            while len(self._runs) > self._size:
                run = next((run for run in self._runs if run not in busy), next(iter(self._runs)))
                del self._runs[run]
                dropped.append(run)
        return dropped
