"""Whole runs on toy models, in this process or in others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent_forge.evomerge.config import parse
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.submission import planned
from agent_forge.runs.history.repository import load
from agent_forge.runs.home import Home
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.tasks import runner
from testing.models.toys import Toys
from testing.worlds.warm_process import WarmProcess

#: Small and quick, but with every kind of event.
SETTINGS: dict[str, Any] = {
    "strategy": "elite-loser",
    "generations": 2,
    "search_windows": 3,
    "search_questions": 2,
    "search_problems": 2,
    "evaluation_dtype": "model",  # the same numbers on every processor
    "seed": 3,
}

REPOSITORY = Path(__file__).resolve().parents[2]


def submit(home: Home, toys: Toys, run: str = "r", data: tuple[str, ...] = (), **settings: Any) -> str:
    """Submit a run over the toys, on their data or other."""
    store = home.open_store()
    config = parse({**SETTINGS, **settings})
    sources = tuple(resolve(str(s)) for s in toys.sources)
    base = resolve(str(toys.base))
    plan = planned(config, sources, base, data or (str(toys.data),))
    commands_submit.submit(store, plan, run)
    store.close()
    return run


def finish(home: Home, run: str = "r", **worker: Any) -> RunState:
    """Carry a run to its end in this process."""
    store = home.open_store()
    try:
        return runner.finish(runner.WorkerProcess(store, Artifacts.of(home), **worker), run)
    finally:
        store.close()


def state(home: Home, run: str = "r") -> RunState:
    """Return a run's state from the log."""
    store = home.open_store()
    try:
        return load(store, run)
    finally:
        store.close()


_CODE = """
import sys
from pathlib import Path
from testing.worlds import runs
from agent_forge.runs.home import Home
print(runs.finish(Home(Path(sys.argv[1])), sys.argv[2]).lineage_digest())
"""


def process(home: Home, run: str = "r", failpoints: str = "") -> subprocess.Popen[str]:
    """Carry a run on in a process of its own; it prints the lineage digest."""
    env = {**os.environ, "FORGE_FAILPOINTS": failpoints, "OMP_WAIT_POLICY": "PASSIVE"}
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, str(home.folder), run],
        cwd=REPOSITORY,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def was_killed(done: subprocess.Popen[str] | WarmProcess) -> bool:
    """Return True if a process ended by SIGKILL."""
    done.communicate()
    return done.returncode == -signal.SIGKILL
