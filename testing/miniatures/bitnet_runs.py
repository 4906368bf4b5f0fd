"""Bitnet runs in miniature: the machinery is real, training takes a second, the models are poor."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_forge.evaluation.data.builtin import arithmetic, records
from agent_forge.events import Envelope
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.studies.making.making import MakingState
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.commands import submit as validate
from agent_forge.worker.tasks import runner

#: Settings of a run of some seconds.
QUICK: dict[str, Any] = {
    "tokens": 1_300,
    "batch": 4,
    "context": 32,
    "scratch": True,
    "distillation": 0.1,
}


def texts(folder: Path) -> list[str]:
    """Write a little generated text of two domains; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"sums": arithmetic.documents(30_000, 3), "rows": records.documents(30_000, 3)}
    for domain, documents in made.items():
        lines = (json.dumps({"text": document.text}) for document in documents)
        (folder / f"{domain}.jsonl").write_text("\n".join(lines), "utf-8")
    return [str(folder / f"{domain}.jsonl") for domain in made]


def submit(home: Home, model: Path, run: str = "r", **settings: Any) -> str:
    """Submit a run of a model over `texts`; return its name."""
    given, data = {"model": [str(model)]}, texts(home.folder / "texts")
    plan = validate.plan(RunRequest("bitnet", {**QUICK, **settings}, given, data))
    with closing(home.open_store()) as store:
        return commands_submit.submit(store, plan, run)


def finish(home: Home, run: str = "r") -> MakingState:
    """Carry a run to its end in this process. Raises RunFailedError, RunCancelledError."""
    with closing(home.open_store()) as store:
        return runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), run)


def carry_until(home: Home, stop: Callable[[MakingState], bool], run: str = "r") -> MakingState:
    """Carry a run on until `stop(state)` is True between two tasks; return its state."""
    with closing(home.open_store()) as store:
        seen = [repository.load(store, run)]

        def watch(state: MakingState, _rows: list[Envelope]) -> None:
            seen[0] = state

        worker = runner.WorkerProcess(store, Artifacts.of(home), watch, lambda: stop(seen[0]))
        return worker.run(run)


def state(home: Home, run: str = "r") -> MakingState:
    """Return a run's state from the log."""
    with closing(home.open_store()) as store:
        return repository.load(store, run)


def rows(home: Home, run: str = "r") -> list[Envelope]:
    """Return the history of a run."""
    with closing(home.open_store()) as store:
        return list(repository.history(store, run))
