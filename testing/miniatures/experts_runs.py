"""Experts runs in miniature: the machinery is real, training takes a second, the models are poor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_forge.evaluation.data.builtin import phrase_grammar
from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from testing.kind_runs import KindRuns
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

_RUNS = KindRuns[MakingState]("experts", "x")
finish, result, state, rows = _RUNS.finish, _RUNS.result, _RUNS.state, _RUNS.rows


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
    models, data = {"model": [model], "merges": merges}, texts(home.folder / "texts")
    return _RUNS.submit(home, run, {**QUICK, **settings}, models, data)
