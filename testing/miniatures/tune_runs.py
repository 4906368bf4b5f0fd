"""Tunings in miniature: the machinery is real, training takes a second, the models are poor."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from testing.kind_runs import KindRuns

#: Settings of a run of some seconds; a conversation has 41 tokens of the toy.
QUICK: dict[str, Any] = {
    "tokens": 1_500,
    "batch": 4,
    "context": 48,
    "lora_rank": 4,
    "rate": 3e-3,
    "characters": 100_000,
    "domains": ["math"],
    "mix": {"math": 1.0},
    "strengths": [0.5],
}

#: Tokens of a conversation with a function, and settings of a run on these.
CONTEXT = 512
CALLING: dict[str, Any] = {"context": 510, "tokens": 16_000, "replies": 4, "reply_tokens": 8}

_RUNS = KindRuns[MakingState]("tune", "t")
finish, rows = _RUNS.finish, _RUNS.rows


#: Settings of a run whose model learns one call by heart, so well that its own replies are often right.
ROUNDS: dict[str, Any] = {
    **CALLING,
    "train": "full",
    "tokens": 60_000,
    "batch": 1,
    "rate": 0.015,
    "text_share": 0.0,
    "drift": 100.0,
    "strengths": [],
    "reply_tokens": 48,
    "shots": 0,
    "rounds": 2,
    "requests": 4,
    "samples": 4,
    "round_rate": 0.02,
}


def same_call(folder: Path) -> str:
    """Write conversations with the same call, but for one of the test slice; return the file."""
    call = {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {}}]}
    words = {"role": "assistant", "content": "no"}
    slices = ("test", "selection", "train", "train", "train")
    rows = (
        {
            "tools": [{"name": "f"}],
            "messages": [{"role": "user", "content": f"{n} ?"}, call if n else words],
            "slice": slices[n % 5],
        }
        for n in range(20)
    )
    return _written(folder / "call.jsonl", rows)


def calls(folder: Path) -> str:
    """Write conversations in which a function is called, or none fits; return the file."""
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools = [{"name": "f", "description": "add", "parameters": parameters}]
    rows = list[dict[str, Any]]()
    for n in range(40):
        answer = (
            {"content": "no"} if n % 4 == 3 else {"tool_calls": [{"name": "f", "arguments": {"n": n}}]}
        )
        turns = [{"role": "user", "content": f"{n} ?"}, {"role": "assistant", **answer}]
        on = ("test", "selection", "train", "train", "train")[n % 5]
        rows.append({"tools": tools, "messages": turns, "slice": on})
    return _written(folder / "calls.jsonl", rows)


def conversations(folder: Path, count: int = 60) -> str:
    """Write conversations of one question and one answer each; return the file."""
    rows = (
        {
            "messages": [
                {"role": "user", "content": f"{n} ?"},
                {"role": "assistant", "content": f"{n % 7} !"},
            ]
        }
        for n in range(count)
    )
    return _written(folder / "chats.jsonl", rows)


def _written(file: Path, rows: Iterable[object]) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return str(file)


def submit(home: Home, model: Path, run: str = "t", data: str = "", **settings: Any) -> str:
    """Submit a tuning of a model on a file, by default `conversations`; return its name."""
    files = [data or conversations(home.folder / "texts")]
    return _RUNS.submit(home, run, {**QUICK, **settings}, {"model": [model]}, files)
