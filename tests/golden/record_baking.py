"""Write the golden logs of baking runs: `python -m tests.golden.record_baking`. None twice."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from agent_forge.events import Envelope
from agent_forge.runs.home import Home
from testing.miniatures import baking_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import record

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
        dtype = torch.bfloat16 if name == "baking-4" else torch.float32
        record(name, partial(_carried, settings, dtype))


def _carried(settings: dict[str, Any], dtype: torch.dtype, folder: Path) -> list[Envelope]:
    """Return the rows of a run of a model of a dtype, carried out in a folder."""
    model = toy_models.in_dtype(baking_runs.able(folder / "able"), folder / "model", dtype)
    home = Home(folder / "home")
    baking_runs.submit(home, model, **settings)
    baking_runs.finish(home)
    return baking_runs.rows(home)


if __name__ == "__main__":
    main()
