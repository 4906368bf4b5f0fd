"""Write the golden logs of curriculum runs: `python -m tests.golden.record_curriculum`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

from agent_forge.runs.home import Home
from testing.miniatures import curriculum_runs
from testing.models import symbol_models, toy_models
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a run with all arms of its time for each schema, the fifth of a model in bfloat16.

    Logs that are there stay.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number in (1, 2, 3, 4, 5):
            path = FOLDER / f"curriculum-{number}.jsonl"
            if path.exists():
                continue
            home = Home(folder / path.stem)
            dtype = torch.bfloat16 if number == 5 else torch.float32
            model, _ = toy_models.family(folder / f"models-{number}", 0, dtype)
            given = symbol_models.write(folder / "symbols") if number == 3 else model
            settings = {3: curriculum_runs.BESIDE, 4: curriculum_runs.WITH_TEXT}.get(number, {})
            curriculum_runs.submit(home, given, **settings)
            curriculum_runs.finish(home)
            rows = curriculum_runs.rows(home)
            lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
            path.write_text("\n".join(lines) + "\n", "utf-8")
            path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
