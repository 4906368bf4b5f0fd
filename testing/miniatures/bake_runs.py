"""Bakes in miniature: the machinery is real, training takes a second, the models are poor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from testing.kind_runs import KindRuns
from testing.miniatures.bitnet_runs import texts
from testing.models import toy_models

#: A prompt that moves what the toy model says.
PROMPT = "Answer with sums: 1 + 1 = 2, 2 + 2 = 4\n"
#: Settings of a run of some seconds. The toy takes 64 tokens, the prompt has about 30.
QUICK: dict[str, Any] = {
    "prompts": [PROMPT],
    "others": ["name=x\n"],
    "generic": False,
    "built_in": [],
    "contexts": ["rows"],
    "batch": 4,
    "context": 32,
    "context_tokens": 8,
    "reply_tokens": 6,
    "neutral_tokens": 8,
    "trajectories": 16,
    "held_out": 12,
    "strengths": [0.3, 1.0],
    "steps": 10,
    "rate": 3e-3,
}

#: A second prompt, and a run of two in a row, each as short as it can be.
SECOND = "x = 9\n"
SEVERAL: dict[str, Any] = {
    "prompts": [PROMPT, SECOND],
    "checks": [{"kind": "pattern", "pattern": "[0-9]", "search": True}],
    "sequence": True,
    "pursuit": 1,
    "own_replies": 1,
    "stops": [0.5],
    "beyond": 12,
    "context_tokens": 5,
    "trajectories": 8,
    "held_out": 8,
}
#: Adapters instead of all weights, of two layers of each block.
ADAPTED: dict[str, Any] = {
    "train": "lora",
    "lora_rank": 4,
    "lora_modules": ["q_proj", "mlp.down_proj"],
    "rate": 2e-2,
}

_RUNS = KindRuns[MakingState]("bake", "b")
finish, result, rows = _RUNS.finish, _RUNS.result, _RUNS.rows


def model(folder: Path, dtype: torch.dtype = torch.float32) -> Path:
    """Write a model whose weights are large enough that a prompt changes what it says."""
    return toy_models.family(folder, 0, dtype, initializer_range=0.25)[0]


def submit(home: Home, model: Path, run: str = "b", **settings: Any) -> str:
    """Submit a run of a model over generated text; return its name."""
    data = texts(home.folder / "texts")
    return _RUNS.submit(home, run, {**QUICK, **settings}, {"model": [model]}, data)


def whole(folder: Path, model: Path, **settings: Any) -> tuple[Home, MakingState, Path]:
    """Carry out a run in a home below `folder`; return home, state and the folder of the result."""
    home = Home(folder / "home")
    submit(home, model, **settings)
    return result(home, folder / "out")
