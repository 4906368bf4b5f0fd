"""Runs of one kind in a real store: submitted, carried on, read. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Generic, TypeVar

from agent_forge.events import Envelope
from agent_forge.runs import kinds
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Plan, RunRequest
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit as submission
from agent_forge.worker.tasks import runner

State = TypeVar("State")


def record(home: Home, plan: Plan, run: str, **queued: Any) -> str:
    """Record a plan as a new run; return its name."""
    with closing(home.open_store()) as store:
        return submission.submit(store, plan, run, **queued)


class KindRuns(Generic[State]):
    """Runs of a kind, whose states have one type. A run that the caller does not name is `run`."""

    def __init__(self, kind: str, run: str) -> None:
        self._kind, self._run = kind, run

    def submit(
        self,
        home: Home,
        run: str,
        settings: Mapping[str, Any],
        models: Mapping[str, Sequence[str | Path]] | None = None,
        data: Sequence[str] = (),
        check: bool = True,
        **queued: Any,
    ) -> str:
        """Submit a run, checked unless `check` is False, `queued` as it says; return its name."""
        names = {role: [str(model) for model in several] for role, several in (models or {}).items()}
        plan = submission.plan(RunRequest(self._kind, settings, names, data))
        if check:
            submission.check(plan)
        return record(home, plan, run, **queued)

    def finish(self, home: Home, run: str | None = None) -> State:
        """Carry a run to its end in this process. Raises RunFailedError, RunCancelledError."""
        with closing(home.open_store()) as store:
            worker = runner.WorkerProcess(store, Artifacts.of(home))
            return runner.finish(worker, run or self._run)

    def result(self, home: Home, folder: Path, run: str | None = None) -> tuple[Home, State, Path]:
        """Carry a run to its end, write its result into a folder; return (home, state, folder)."""
        state: Any = self.finish(home, run)
        kinds.of(self._kind).write_result(home, state, folder)
        return home, state, folder

    def carry_until(self, home: Home, stop: Callable[[State], bool], run: str | None = None) -> State:
        """Carry a run on until `stop(state)` is True between two tasks; return its state."""
        name = run or self._run
        with closing(home.open_store()) as store:
            states = [repository.load(store, name)]

            def watch(state: State, _rows: list[Envelope]) -> None:
                states[0] = state

            worker = runner.WorkerProcess(store, Artifacts.of(home), watch, lambda: stop(states[0]))
            return worker.run(name)

    def state(self, home: Home, run: str | None = None) -> State:
        """Return a run's state from the log."""
        with closing(home.open_store()) as store:
            return repository.load(store, run or self._run)

    def rows(self, home: Home, run: str | None = None) -> list[Envelope]:
        """Return the history of a run."""
        with closing(home.open_store()) as store:
            return list(repository.history(store, run or self._run))
