"""Events of runs without their data, read once and kept; and the runs that a run delegates."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from events import Envelope
from runs import kinds
from runs.errors import NotFoundError
from runs.history.children import delegated, is_child
from runs.history.places import inside
from runs.history.repository import Log, history, stream_of
from runs.history.run_cache import RunCache
from runs.kinds import wording
from runs.kinds.state import State
from runs.record.events import TaskDied, TaskFailed
from runs.record.journal import Child, Line, place_at

#: Types of the events that say that an attempt at a task has failed.
_FAILED = frozenset({TaskFailed.type, TaskDied.type})


class Journals:
    """Events, without their data, of the runs that were asked for last. Safe with several threads."""

    def __init__(self, log: Log, runs: RunCache, size: int = 64) -> None:
        """Keep the events of at most `size` runs."""
        self._log, self._runs, self._size = log, runs, size
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, list[Line]] = OrderedDict()

    def lines(self, run: str) -> list[Line]:
        """Return the events of a run's history, in order. Raises NotFoundError for an unknown run."""
        with self._runs.reading(run) as state, self._lock:
            kept_lines = self._kept.setdefault(run, [])
            self._kept.move_to_end(run)
            count = len(kept_lines) - (state.place - state.version)  # of its own stream
            if not kept_lines:
                rows: Iterable[Envelope] = history(self._log, run)
            else:
                rows = self._log.iterate(state.stream, after=count, upto=state.version)
            if len(kept_lines) < state.place:
                kept_lines += _lines(state, rows, len(kept_lines))
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
            return kept_lines[: state.place]

    def place(self, run: str, position: int) -> int:
        """Return the place that a run was at when the log ended at this position.

        Raises NotFoundError if the run had not begun.
        """
        place = place_at(self.lines(run), position)
        if place == 0:
            raise NotFoundError(f"run {run} had not begun at position {position} of the log.")
        return place

    @contextmanager
    def children(self, state: State, upto: int | None = None) -> Iterator[list[Child]]:
        """Give the runs that a run has delegated, as they were at the position `upto` of the log.

        None: as they are now. A run of a child's name that is no child is left out. The states are
        not to be changed, nor kept. The caller holds the parent's state: locks are taken from the
        parent down.
        """
        with ExitStack() as held:
            child_runs = []
            for task, run in sorted(delegated(self._log, state).items(), key=lambda pair: pair[1]):
                lines = self.lines(run)
                place = len(lines) if upto is None else place_at(lines, upto)
                if place:
                    child = held.enter_context(self._runs.reading(run, place))
                    reused = bool(getattr(state.answers.get(task), "reused", None))
                    child_runs.append(Child(task, child, lines[:place], reused))
            yield child_runs

    def parent(self, run: str) -> str | None:
        """Return the run that this run is a task of; None if it is of none.

        A child's name begins with its parent's and a dot (`pipeline.plan.child_name`).
        """
        name = run
        while "." in name:
            name = name.rpartition(".")[0]
            if stream_of(self._log, name) is not None:
                with self._runs.reading(name) as state:
                    if is_child(self._log, state, run):
                        return name
        return None


def _lines(state: State, rows: Iterable[Envelope], before: int) -> list[Line]:
    """Return rows of a run's history as lines; `before` events came before them."""
    names = wording.names(state)
    answers = {event.type for event in kinds.of(state.kind).answers}
    return [
        _line(state.kind, row, place, names, answers) for place, row in enumerate(rows, before + 1)
    ]


def _line(kind: str, row: Envelope, place: int, names: dict[str, str], answers: set[str]) -> Line:
    data: dict[str, Any] = json.loads(row.data)
    line = Line(
        position=row.position,
        place=place,
        type=row.type,
        inside=inside(row),
        actor=row.actor,
        recorded_at=row.recorded_at,
        gist=wording.gist(kind, row.type, data, names),
        unit=kinds.of(kind).unit_of(row),
    )
    if row.type in _FAILED:
        key = str(data.get("task", ""))
        return line._replace(task=wording.next_step(kind, key, names), outcome="failed")
    if row.type in answers:
        key, seconds = row.key.partition("/")[2], data.get("seconds")
        words = wording.next_step(kind, key, names)
        seconds = float(seconds) if isinstance(seconds, int | float) else None
        return line._replace(task=words, outcome="done", seconds=seconds)
    return line
