"""Student runs in miniature: the machinery is real, training takes a second, the models are poor."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from agent_forge.events import Envelope
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.studies.making.making import MakingState
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.commands import submit as validate
from agent_forge.worker.tasks import runner
from testing.miniatures.bitnet_runs import texts

#: Settings of a run of some seconds: 10 steps of 4 × 32 tokens.
QUICK: dict[str, Any] = {"tokens": 1_300, "batch": 4, "context": 32, "temperature": 2.0}


def submit(home: Home, model: Path, run: str = "s", **settings: Any) -> str:
    """Submit a run of a model over generated text; return its name."""
    given, data = {"model": [str(model)]}, texts(home.folder / "texts")
    plan = validate.plan(RunRequest("student", {**QUICK, **settings}, given, data))
    validate.check(plan)
    with closing(home.open_store()) as store:
        return commands_submit.submit(store, plan, run)


def finish(home: Home, run: str = "s") -> MakingState:
    """Carry a run to its end in this process. Raises RunFailedError, RunCancelledError."""
    with closing(home.open_store()) as store:
        return runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), run)


def state(home: Home, run: str = "s") -> MakingState:
    """Return a run's state from the log."""
    with closing(home.open_store()) as store:
        return repository.load(store, run)


def rows(home: Home, run: str = "s") -> list[Envelope]:
    """Return the history of a run."""
    with closing(home.open_store()) as store:
        return list(repository.history(store, run))
