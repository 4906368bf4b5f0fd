"""Toy runs (`testing/toy/toy_kind.py`) in a real store: submitted, carried on, read. No torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from agent_forge.events import Envelope
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.record.events import Quarantine
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.commands import submit as validate
from agent_forge.worker.tasks import runner
from testing.toy.toy_state import ToyState


def submit(home: Home, run: str = "r", quarantine: Quarantine = "fail", **settings: Any) -> str:
    """Submit a toy run; return its name."""
    plan = validate.plan(RunRequest("toy", settings))
    with closing(home.open_store()) as store:
        return commands_submit.submit(store, plan, run, quarantine=quarantine)


def finish(home: Home, run: str = "r") -> ToyState:
    """Carry a run to its end in this process. Raises RunFailedError, RunCancelledError."""
    with closing(home.open_store()) as store:
        return runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), run)


def carry_until(home: Home, stop: Callable[[ToyState], bool], run: str = "r") -> ToyState:
    """Carry a run on until `stop(state)` is True between two tasks; return its state."""
    with closing(home.open_store()) as store:
        seen = [repository.load(store, run)]

        def watch(state: ToyState, _rows: list[Envelope]) -> None:
            seen[0] = state

        worker = runner.WorkerProcess(store, Artifacts.of(home), watch, lambda: stop(seen[0]))
        return worker.run(run)


def state(home: Home, run: str = "r") -> ToyState:
    """Return a run's state from the log."""
    with closing(home.open_store()) as store:
        return repository.load(store, run)


def rows(home: Home, run: str = "r") -> list[Envelope]:
    """Return a run's whole history."""
    with closing(home.open_store()) as store:
        return list(repository.history(store, run))
