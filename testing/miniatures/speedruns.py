"""`examples/speedrun.toml` in miniature: all of its phases, in a minute or two."""

from __future__ import annotations

import tomllib
from typing import Any

from testing.miniatures import pipeline_runs, small_text
from testing.worlds.runs import REPOSITORY

#: Phase → settings by which it takes seconds. Models have 64 tokens.
SMALLER: dict[str, dict[str, Any]] = {
    "specialists": {"preset": "mini", "domains": small_text.DOMAINS},
    "merge": pipeline_runs.PHASES[1]["settings"],
    "thoughts": {
        "tokens": 300,
        "base_tokens": 300,
        "batch": 2,
        "context": 16,
        "thought_lengths": [2],
        "document_tokens": 24,
        "measured_tokens": 200,
        "characters": 500_000,
    },
    "ternary": {"tokens": 2_000, "characters": 500_000},
    "learned": {
        "levels": 1,
        "tokens": 6_000,
        "segments": 2,
        "pool": 16,
        "selection_items": 8,
        "test_items": 8,
    },
    "prompt": {
        "context_tokens": 12,
        "reply_tokens": 12,
        "trajectories": 8,
        "held_out": 8,
        "steps": 3,
        "batch": 4,
        "characters": 500_000,
        "generic": False,
    },
    "tools": {
        "tool_prompt": "Tools!\n",
        "others": ["x\n"],
        "train_items": 8,
        "selection_items": 4,
        "test_items": 8,
        "personas": 2,
        "persona_tokens": 4,
        "reply_tokens": 12,
        "steps": 3,
        "characters": 500_000,
    },
    "mixed": {
        "tokens": 1_000,
        "characters": 500_000,
        "context": 48,
        "experts": 1,
        "evaluations": 8,
        "population": 4,
        "windows": 2,
        "shots": 2,
        "rounds": 1,
        "points": 4,
        "lora": False,
    },
    "small": {"settings": "rtn-4,uniform-1"},
}


def example() -> dict[str, Any]:
    """Return the file as it is."""
    return tomllib.loads((REPOSITORY / "examples" / "speedrun.toml").read_text("utf-8"))


def phases() -> list[dict[str, Any]]:
    """Return its phases with these settings, on a small text; models without a lead go on, too."""
    found = example()["phase"]
    for phase in found:
        phase["settings"] = {**phase.get("settings", {}), **SMALLER[phase["name"]]}
    found[0]["data"] = [str(small_text.file())]
    found[0]["gate"][0]["at_least"] = found[1]["gate"][0]["at_least"] = -10
    return found
