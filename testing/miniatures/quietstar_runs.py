"""Quietstar runs in miniature: the machinery is real, training takes a second, thoughts are poor."""

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

#: Settings of a run of some seconds: 6 steps of 2 × 16 tokens.
QUICK: dict[str, Any] = {
    "tokens": 200,
    "base_tokens": 100,
    "batch": 2,
    "context": 16,
    "thought_lengths": [3, 2],
    "document_tokens": 24,
    "measured_tokens": 150,
}


def submit(home: Home, model: Path, run: str = "q", **settings: Any) -> str:
    """Submit a run of a model over generated text; return its name."""
    given, data = {"model": [str(model)]}, texts(home.folder / "texts")
    plan = validate.plan(RunRequest("quietstar", {**QUICK, **settings}, given, data))
    validate.check(plan)
    with closing(home.open_store()) as store:
        return commands_submit.submit(store, plan, run)


def finish(home: Home, run: str = "q") -> MakingState:
    """Carry a run to its end in this process. Raises RunFailedError, RunCancelledError."""
    with closing(home.open_store()) as store:
        return runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), run)


def rows(home: Home, run: str = "q") -> list[Envelope]:
    """Return the history of a run."""
    with closing(home.open_store()) as store:
        return list(repository.history(store, run))
