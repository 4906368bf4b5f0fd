"""Curriculum runs in miniature: the machinery is real, training takes a second, the models are poor."""

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

#: Settings of a run of some seconds: two families of two levels, three segments of 4 steps of 4 × 60.
QUICK: dict[str, Any] = {
    "tokens": 2_880,
    "batch": 4,
    "context": 60,
    "segments": 3,
    "families": ["brackets", "sort-digits"],
    "levels": 2,
    "pool": 40,
    "selection_items": 8,
    "test_items": 12,
}
#: Settings of a run with chaos, dreams, a self-model and stages, of a model of symbols that learns one
#: family: six segments of 6 steps of 8 × 60.
BESIDE: dict[str, Any] = {
    "tokens": 17_280,
    "batch": 8,
    "context": 60,
    "rate": 3e-2,
    "segments": 6,
    "families": ["automaton-0", "brackets"],
    "levels": 2,
    "pool": 40,
    "selection_items": 12,
    "test_items": 12,
    "arms": ["adaptive", "chaos", "dreams", "self_model", "stages"],
    "burst_every": 3,
    "relapse": 0.02,
}
#: Settings of a run of one arm with ordinary text among its items.
WITH_TEXT: dict[str, Any] = {
    "arms": ["adaptive"],
    "text": 0.5,
    "text_tokens": 24,
    "characters": 100_000,
}


def submit(home: Home, model: Path, run: str = "c", **settings: Any) -> str:
    """Submit a run of a model; return its name."""
    plan = validate.plan(RunRequest("curriculum", {**QUICK, **settings}, {"model": [str(model)]}))
    validate.check(plan)
    with closing(home.open_store()) as store:
        return commands_submit.submit(store, plan, run)


def finish(home: Home, run: str = "c") -> MakingState:
    """Carry a run to its end in this process. Raises RunFailedError, RunCancelledError."""
    with closing(home.open_store()) as store:
        return runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), run)


def rows(home: Home, run: str = "c") -> list[Envelope]:
    """Return the history of a run."""
    with closing(home.open_store()) as store:
        return list(repository.history(store, run))
