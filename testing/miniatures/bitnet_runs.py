"""Bitnet runs in miniature: the machinery is real, training takes a second, the models are poor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_forge.evaluation.data.builtin import arithmetic, records
from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from testing.kind_runs import KindRuns

#: Settings of a run of some seconds.
QUICK: dict[str, Any] = {
    "tokens": 1_300,
    "batch": 4,
    "context": 32,
    "scratch": True,
    "distillation": 0.1,
}

_RUNS = KindRuns[MakingState]("bitnet", "r")
finish, result, carry_until, state, rows = (
    _RUNS.finish,
    _RUNS.result,
    _RUNS.carry_until,
    _RUNS.state,
    _RUNS.rows,
)


def texts(folder: Path) -> list[str]:
    """Write a little generated text of two domains; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"sums": arithmetic.documents(30_000, 3), "rows": records.documents(30_000, 3)}
    for domain, documents in made.items():
        lines = (json.dumps({"text": document.text}) for document in documents)
        (folder / f"{domain}.jsonl").write_text("\n".join(lines), "utf-8")
    return [str(folder / f"{domain}.jsonl") for domain in made]


def submit(home: Home, model: Path, run: str = "r", **settings: Any) -> str:
    """Submit a run of a model over `texts`; return its name."""
    data, models = texts(home.folder / "texts"), {"model": [model]}
    return _RUNS.submit(home, run, {**QUICK, **settings}, models, data, check=False)
