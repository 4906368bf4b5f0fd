"""Curriculum runs in miniature: the machinery is real, training takes a second, the models are poor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from testing.kind_runs import KindRuns

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

_RUNS = KindRuns[MakingState]("curriculum", "c")
finish, result, rows = _RUNS.finish, _RUNS.result, _RUNS.rows


def submit(home: Home, model: Path, run: str = "c", **settings: Any) -> str:
    """Submit a run of a model; return its name."""
    return _RUNS.submit(home, run, {**QUICK, **settings}, {"model": [model]})
