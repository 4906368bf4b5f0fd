"""Baking runs in miniature: the machinery is real, training takes seconds, the models are poor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_forge.evaluation.data.slices import Slice
from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from agent_forge.tools.tasks import items
from testing.kind_runs import KindRuns
from testing.miniatures.bitnet_runs import texts
from testing.models import able_toy

#: The prompt under which the able toy calls a tool.
PROMPT = "Tools!\n"
#: Settings of a run of some seconds. The toy takes 96 tokens.
QUICK: dict[str, Any] = {
    "families": ["table"],
    "levels": 1,
    "tool_prompt": PROMPT,
    "form": "tags",
    "train_items": 16,
    "selection_items": 8,
    "test_items": 12,
    "cycles": ["personas", "tools"],
    "iterations": 2,
    "personas": 3,
    "proposal": "Tools!",
    "persona_tokens": 6,
    "reply_tokens": 28,
    "calls": 1,
    "others": ["name=x\n"],
    "batch": 8,
    "context": 32,
    "neutral_tokens": 8,
    "steps": 6,
    "rate": 3e-3,
    "strength": 0.8,
    "smoothing": 1,
    "window": 2,
    "epsilon": 0.9,
}

_RUNS = KindRuns[MakingState]("baking", "b")
finish, result, rows = _RUNS.finish, _RUNS.result, _RUNS.rows


def able(folder: Path, steps: int = 300) -> Path:
    """Train a model that knows by heart how to call the tool of the run's tasks under the prompt."""
    counts: dict[Slice, int] = {"train": 16, "selection": 8, "test": 12}
    own = [one for on, count in counts.items() for one in items("table", 1, 0, on, count)]
    return able_toy.train(folder, PROMPT, ["table"], steps, size=48, peak=1e-2, own_items=own)


def submit(home: Home, model: Path, run: str = "b", **settings: Any) -> str:
    """Submit a run of a model over generated text; return its name."""
    data = texts(home.folder / "texts")
    return _RUNS.submit(home, run, {**QUICK, **settings}, {"model": [model]}, data)
