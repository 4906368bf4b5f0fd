"""Write the golden log of an experts run: `python -m tests.golden.record_experts`. None twice."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from agent_forge.events import Envelope
from agent_forge.runs.home import Home
from testing.miniatures import experts_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import record


def main() -> None:
    """Write a run with two further models and a family of tasks; logs that are there stay.

    In experts-1 are neither adapters nor families, in experts-2 no elite, in experts-3 three finalists;
    the models of experts-5 are in bfloat16.
    """
    for number, dtype in ((4, torch.float32), (5, torch.bfloat16), (6, torch.float32)):
        record(f"experts-{number}", partial(_carried, dtype))


def _carried(dtype: torch.dtype, folder: Path) -> list[Envelope]:
    """Return the rows of a run of models of a dtype, carried out in a folder."""
    home, (model, merges) = Home(folder / "home"), toy_models.family(folder, 2, dtype)
    experts_runs.submit(home, model, merges, **experts_runs.TASKS)
    experts_runs.finish(home)
    return experts_runs.rows(home)


if __name__ == "__main__":
    main()
