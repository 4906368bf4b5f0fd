"""Experts runs in miniature: the machinery is real, training takes a second, the models are poor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_forge.evaluation.data.builtin import phrase_grammar
from agent_forge.events import Envelope
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.studies.making.making import MakingState
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.commands import submit as validate
from agent_forge.worker.tasks import runner
from testing.miniatures import bitnet_runs

#: Settings of a run of some seconds: experts of 10 steps of 4 × 32 tokens, arms of three generations.
QUICK: dict[str, Any] = {
    "tokens": 1_300,
    "batch": 4,
    "context": 32,
    "neutral": "phrases",
    "evaluations": 30,
    "population": 12,
    "windows": 4,
    "probe": 1,
    "shots": 2,
    "rounds": 2,
    "points": 4,
    "prompt": 8,
    "drift": 0.5,
    "lora": True,
}

#: The same with experts of a family, by rewards of the model's own replies.
TASKS: dict[str, Any] = {
    "train": "reinforce",
    "families": ["addition"],
    "pool": 20,
    "family_items": 8,
    "replies": 8,
    "experts": 1,
    "evaluations": 8,
    "population": 4,
}


def texts(folder: Path) -> list[str]:
    """Write a little generated text of three domains; return the files."""
    lines = (json.dumps({"text": one.text}) for one in phrase_grammar.documents(90_000, 3))
    made = bitnet_runs.texts(folder)
    (folder / "phrases.jsonl").write_text("\n".join(lines), "utf-8")
    return [*made, str(folder / "phrases.jsonl")]


def submit(
    home: Home, model: Path, merges: Sequence[Path] = (), run: str = "x", **settings: Any
) -> str:
    """Submit a run of a model over generated text; return its name."""
    given = {"model": [str(model)], "merges": [str(merge) for merge in merges]}
    data = texts(home.folder / "texts")
    plan = validate.plan(RunRequest("experts", {**QUICK, **settings}, given, data))
    validate.check(plan)
    with closing(home.open_store()) as store:
        return commands_submit.submit(store, plan, run)


def finish(home: Home, run: str = "x") -> MakingState:
    """Carry a run to its end in this process. Raises RunFailedError, RunCancelledError."""
    with closing(home.open_store()) as store:
        return runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), run)


def state(home: Home, run: str = "x") -> MakingState:
    """Return a run's state from the log."""
    with closing(home.open_store()) as store:
        return repository.load(store, run)


def rows(home: Home, run: str = "x") -> list[Envelope]:
    """Return the history of a run."""
    with closing(home.open_store()) as store:
        return list(repository.history(store, run))
