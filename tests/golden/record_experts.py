"""Write the golden log of an experts run: `python -m tests.golden.record_experts`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

from agent_forge.runs.home import Home
from testing.miniatures import experts_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a run with two further models and a family of tasks; logs that are there stay.

    In experts-1 are neither adapters nor families, in experts-2 no elite, in experts-3 three finalists;
    the models of experts-5 are in bfloat16.
    """
    for number, dtype in ((4, torch.float32), (5, torch.bfloat16), (6, torch.float32)):
        path = FOLDER / f"experts-{number}.jsonl"
        if not path.exists():
            _write(path, dtype)


def _write(path: Path, dtype: torch.dtype) -> None:
    """Carry a run of models of a dtype out, and write its rows and what they fold to."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model, merges = toy_models.family(folder, 2, dtype)
        home = Home(folder / path.stem)
        experts_runs.submit(home, model, merges, **experts_runs.TASKS)
        experts_runs.finish(home)
        rows = experts_runs.rows(home)
        lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", "utf-8")
        path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
