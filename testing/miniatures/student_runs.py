"""Student runs in miniature: the machinery is real, training takes a second, the models are poor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from testing.kind_runs import KindRuns
from testing.miniatures.bitnet_runs import texts

#: Settings of a run of some seconds: 10 steps of 4 × 32 tokens.
QUICK: dict[str, Any] = {"tokens": 1_300, "batch": 4, "context": 32, "temperature": 2.0}

_RUNS = KindRuns[MakingState]("student", "s")
finish, result, state, rows = _RUNS.finish, _RUNS.result, _RUNS.state, _RUNS.rows


def submit(home: Home, model: Path, run: str = "s", **settings: Any) -> str:
    """Submit a run of a model over generated text; return its name."""
    data = texts(home.folder / "texts")
    return _RUNS.submit(home, run, {**QUICK, **settings}, {"model": [model]}, data)
