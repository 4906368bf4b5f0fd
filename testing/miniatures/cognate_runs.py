"""Cognate runs in miniature: the machinery is real, training takes seconds, the models are poor."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
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
from testing.miniatures import small_text


def submit(
    home: Home,
    run: str = "r",
    base: str | Path | None = None,
    data: Sequence[str] | None = None,
    **settings: Any,
) -> str:
    """Submit a cognate run; return its name. Without base and data it trains on `small_text`."""
    models = {"base": [str(base)]} if base else {}
    if base is None and data is None:
        data = [str(small_text.file())]
        settings = {"domains": small_text.DOMAINS, **settings}
    plan = validate.plan(RunRequest("cognate", {"preset": "mini", **settings}, models, data or ()))
    with closing(home.open_store()) as store:
        return commands_submit.submit(store, plan, run)


def share_text(made: Home, home: Home) -> Home:
    """Give a home the text that another one has made; return it. Making it takes seconds."""
    shutil.copytree(made.artifacts / "supply", home.artifacts / "supply")
    return home


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
