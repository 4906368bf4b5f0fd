"""Quietstar runs in miniature: the machinery is real, training takes a second, thoughts are poor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from testing.kind_runs import KindRuns
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

_RUNS = KindRuns[MakingState]("quietstar", "q")
finish, result, rows = _RUNS.finish, _RUNS.result, _RUNS.rows


def submit(home: Home, model: Path, run: str = "q", **settings: Any) -> str:
    """Submit a run of a model over generated text; return its name."""
    data = texts(home.folder / "texts")
    return _RUNS.submit(home, run, {**QUICK, **settings}, {"model": [model]}, data)
