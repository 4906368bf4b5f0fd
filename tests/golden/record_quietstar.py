"""Write the golden log of a quietstar run: `python -m tests.golden.record_quietstar`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

from agent_forge.runs.home import Home
from testing.miniatures import quietstar_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a run for each schema, the second of a model in bfloat16; logs that are there stay."""
    for number, dtype in ((1, torch.float32), (2, torch.bfloat16)):
        path = FOLDER / f"quietstar-{number}.jsonl"
        if not path.exists():
            _write(path, dtype)


def _write(path: Path, dtype: torch.dtype) -> None:
    """Carry a run of a model of a dtype out, and write its rows and what they fold to."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model, _ = toy_models.family(folder, 0, dtype)
        home = Home(folder / path.stem)
        quietstar_runs.submit(home, model)
        quietstar_runs.finish(home)
        rows = quietstar_runs.rows(home)
        lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", "utf-8")
        path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
