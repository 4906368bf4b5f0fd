"""Write the golden logs of curriculum runs: `python -m tests.golden.record_curriculum`. None twice."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from agent_forge.events import Envelope
from agent_forge.runs.home import Home
from testing.miniatures import curriculum_runs
from testing.models import symbol_models, toy_models
from tests.golden.test_golden_kinds import record


def main() -> None:
    """Write a run with all arms of its time for each schema, the fifth of a model in bfloat16.

    Logs that are there stay.
    """
    for number in (1, 2, 3, 4, 5):
        record(f"curriculum-{number}", partial(_carried, number))


def _carried(number: int, folder: Path) -> list[Envelope]:
    """Return the rows of the run of a number, carried out in a folder."""
    home = Home(folder / "home")
    dtype = torch.bfloat16 if number == 5 else torch.float32
    model, _ = toy_models.family(folder / "models", 0, dtype)
    model = symbol_models.write(folder / "symbols") if number == 3 else model
    settings = {3: curriculum_runs.BESIDE, 4: curriculum_runs.WITH_TEXT}.get(number, {})
    curriculum_runs.submit(home, model, **settings)
    curriculum_runs.finish(home)
    return curriculum_runs.rows(home)


if __name__ == "__main__":
    main()
