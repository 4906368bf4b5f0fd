"""Write the golden logs of baking runs: `python -m tests.golden.record_baking`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from agent_forge.runs.home import Home
from testing.miniatures import baking_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import FOLDER, told

#: Repairs that fit into the toy's 96 tokens.
REPAIRS = [
    {
        "id": f"r{number}",
        "issue": f"f {number}",
        "files": [{"name": "a.py", "text": f"def f(x):\n  return x-{number}\n"}],
        "tests": [f"assert f(1) == {1 + number}"],
        "fix": [{"file": "a.py", "line": 2, "text": f"return x+{number}"}],
    }
    for number in range(1, 41)
]
RUNS: dict[str, dict[str, Any]] = {
    "baking-1": {},
    "baking-2": {"train": "lora", "lora_rank": 4},
    "baking-3": {"repairs": REPAIRS},
    "baking-4": {},
}


def main() -> None:
    """Write a run of both cycles, one of both by adapters, and one with repairs of the user's own.

    The fourth is of a model in bfloat16.
    """
    for name, settings in RUNS.items():
        if not (FOLDER / f"{name}.jsonl").exists():
            dtype = torch.bfloat16 if name == "baking-4" else torch.float32
            _write(FOLDER / f"{name}.jsonl", settings, dtype)


def _write(path: Path, settings: dict[str, Any], dtype: torch.dtype) -> None:
    """Carry a run of a model of a dtype out, and write its rows and what they fold to."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = toy_models.in_dtype(baking_runs.able(folder / "able"), folder / "model", dtype)
        home = Home(folder / "home")
        baking_runs.submit(home, model, **settings)
        baking_runs.finish(home)
        rows = baking_runs.rows(home)
    lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
