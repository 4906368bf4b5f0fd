"""Write the golden log of a student run: `python -m tests.golden.record_student`. None twice."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from agent_forge.events import Envelope
from agent_forge.runs.home import Home
from testing.miniatures import student_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import record


def main() -> None:
    """Write a run with both students for each schema, the third of a model in bfloat16.

    The fourth has automatic precision. Logs that are there stay.
    """
    for number in (1, 2, 3, 4):
        dtype = torch.bfloat16 if number == 3 else torch.float32
        record(f"student-{number}", partial(_carried, dtype))


def _carried(dtype: torch.dtype, folder: Path) -> list[Envelope]:
    """Return the rows of a run of a model of a dtype, carried out in a folder."""
    home, (model, _) = Home(folder / "home"), toy_models.family(folder / "models", 0, dtype)
    student_runs.submit(home, model)
    student_runs.finish(home)
    return student_runs.rows(home)


if __name__ == "__main__":
    main()
