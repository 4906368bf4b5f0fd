"""Cache of runs folded from the log, and of their events without data; new events are added to both."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager

from agent_forge.events import Envelope
from agent_forge.events.envelope import Data
from agent_forge.runs import kinds
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.history import children, repository
from agent_forge.runs.history.children import delegated, is_child
from agent_forge.runs.history.repository import Log, at_place, history, inside, stream_of
from agent_forge.runs.kinds import wording
from agent_forge.runs.kinds.children import completed_children
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record.events import TaskDied, TaskFailed
from agent_forge.runs.record.lineage import Child, Line, place_at


class _Folded:
    """A run's state, and the lock under which new events are folded into it."""

    def __init__(self) -> None:
        self.state: State | None = None
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
        self._past: OrderedDict[tuple[str, int], State] = OrderedDict()
        self._called: dict[str, Mapping[str, str]] = {}

    def __contains__(self, run: str) -> bool:
        """Return True if the run is kept."""
        folded = self._runs.get(run)
        return folded is not None and folded.state is not None

    def __len__(self) -> int:
        """Return the number of runs that are kept."""
        return len(self._runs)

    def known(self, run: str) -> State | None:
        """Return the run's state as it was last brought up to date; None if it is not kept."""
        folded = self._runs.get(run)
        return None if folded is None else folded.state

    def refresh(self, run: str) -> tuple[State, list[Envelope]]:
        """Return (the run's state, up to date; the rows that were new to it).

        The next call changes the same state: a caller that keeps it sees later events. Raises
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

    def get(self, run: str) -> State:
        """Return the run's state, up to date. Raises what `refresh` raises."""
        return self.refresh(run)[0]

    @contextmanager
    def reading(self, run: str, at: int | None = None) -> Generator[State]:
        """Yield the run's state, now or after `at` events; no other thread changes it meanwhile.

        The caller may not change or keep the state. Raises NotFoundError, and ConfigError for a place
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
        """Return digest → PHASE or PHASE:ROLE, of the models of the parent run; {} without a parent."""
        if self._showing and run not in self._called:
            parent, names = run.rpartition(".")[0], dict[str, str]()
            if parent and repository.stream_of(self._log, parent) is not None:
                with self.reading(parent) as state:
                    if children.is_child(self._log, state, run):
                        for _, end in completed_children(state):
                            phase, models = getattr(end, "name", ""), getattr(end, "models", {})
                            for role, model in models.items():
                                name = phase if len(models) == 1 else f"{phase}:{role}"
                                names.setdefault(model.digest, name)
            self._called[run] = names
        return self._called.get(run, {})

    def _at(self, run: str, at: int) -> State:
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
        """Remove the run's state from the cache."""
        with self._lock:
            self._runs.pop(run, None)

    def shrink(self, busy: Collection[str] = ()) -> list[str]:
        """Drop the longest unused runs beyond the size, those in `busy` last; return their names."""
        dropped: list[str] = []
        with self._lock:
            while len(self._runs) > self._size:
                run = next((run for run in self._runs if run not in busy), next(iter(self._runs)))
                del self._runs[run]
                dropped.append(run)
        return dropped


#: Types of the events that say that an attempt at a task has failed.
_FAILED = frozenset({TaskFailed.type, TaskDied.type})


class Journals:
    """Cache of the events, without their data, of the runs that were used last. Safe with threads."""

    def __init__(self, log: Log, runs: RunCache, size: int = 64) -> None:
        """Keep the events of at most `size` runs."""
        self._log, self._runs, self._size = log, runs, size
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, list[Line]] = OrderedDict()

    def lines(self, run: str) -> list[Line]:
        """Return a `Line`, without data, for each event of a run, in order. Raises NotFoundError."""
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
        """Return the number of a run's events up to this position of the log. Raises NotFoundError.

        NotFoundError: the run had not begun then.
        """
        place = place_at(self.lines(run), position)
        if place == 0:
            raise NotFoundError(f"run {run} had not begun at position {position} of the log.")
        return place

    @contextmanager
    def children(self, state: State, upto: int | None = None) -> Generator[list[Child]]:
        """Yield a list with a `Child` for each run that a run delegated, as at log position `upto`.

        None: as they are now. A run of a child's name that is no child is left out. The caller may not
        change or keep the states, and holds the parent's state: locks are taken from the parent down.
        """
        with ExitStack() as held:
            child_runs: list[Child] = []
            for task, run in sorted(delegated(self._log, state).items(), key=lambda pair: pair[1]):
                lines = self.lines(run)
                place = len(lines) if upto is None else place_at(lines, upto)
                if place:
                    child = held.enter_context(self._runs.reading(run, place))
                    reused = bool(getattr(state.answers.get(task), "reused", None))
                    child_runs.append(Child(task, child, lines[:place], reused))
            yield child_runs

    def parent(self, run: str) -> str | None:
        """Return the name of the run that this run is a task of; None if it is no run's task.

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
    """Return a `Line` for each row of a run's history; `before` events came before these rows."""
    names = wording.names(state)
    answers = {event.type for event in kinds.of(state.kind).answers}
    return [_line(state.kind, row, place, names, answers) for place, row in enumerate(rows, before + 1)]


def _line(kind: str, row: Envelope, place: int, names: dict[str, str], answers: set[str]) -> Line:
    data: Data = json.loads(row.data)
    line = Line(
        position=row.position,
        place=place,
        type=row.type,
        inside=inside(row),
        actor=row.actor,
        recorded_at=row.recorded_at,
        gist=wording.summary_line(kind, row.type, data, names),
        unit=kinds.of(kind).view.unit_of(row),
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
