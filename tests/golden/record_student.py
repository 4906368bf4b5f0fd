"""Write the golden log of a student run: `python -m tests.golden.record_student`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

from agent_forge.runs.home import Home
from testing.miniatures import student_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a run with both students for each schema, the third of a model in bfloat16.

    The fourth has automatic precision. Logs that are there stay.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number in (1, 2, 3, 4):
            path = FOLDER / f"student-{number}.jsonl"
            if path.exists():
                continue
            home = Home(folder / path.stem)
            dtype = torch.bfloat16 if number == 3 else torch.float32
            model, _ = toy_models.family(folder / f"models-{number}", 0, dtype)
            student_runs.submit(home, model)
            student_runs.finish(home)
            rows = student_runs.rows(home)
            lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
            path.write_text("\n".join(lines) + "\n", "utf-8")
            path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
