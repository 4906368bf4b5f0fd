"""Write the golden logs of bakes: `python -m tests.golden.record_bake`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from agent_forge.runs.home import Home
from testing.miniatures import bake_runs
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a bake beside a prompt that is kept, one of two prompts in a row, and one by adapters.

    The fourth is of a model in bfloat16, with a stop; the fifth as the first, since replies are written
    by passes of more rows; the sixth, since precision is determined at the start.
    """
    own = {"bake-1": {}, "bake-2": bake_runs.SEVERAL, "bake-3": bake_runs.ADAPTED}
    for name, settings in {**own, "bake-4": {"stops": [0.5]}, "bake-5": {}, "bake-6": {}}.items():
        if not (FOLDER / f"{name}.jsonl").exists():
            dtype = torch.bfloat16 if name == "bake-4" else torch.float32
            _write(FOLDER / f"{name}.jsonl", settings, dtype)


def _write(path: Path, settings: dict[str, Any], dtype: torch.dtype) -> None:
    """Carry a run of a model of a dtype out, and write its rows and what they fold to."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = bake_runs.model(folder, dtype)
        home = Home(folder / "home")
        bake_runs.submit(home, model, **settings)
        bake_runs.finish(home)
        rows = bake_runs.rows(home)
    lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
