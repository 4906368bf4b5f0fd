"""Write the golden log of a quietstar run: `python -m tests.golden.record_quietstar`. None twice."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from agent_forge.events import Envelope
from agent_forge.runs.home import Home
from testing.miniatures import quietstar_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import record


def main() -> None:
    """Write a run for each schema, the second of a model in bfloat16; logs that are there stay."""
    for number, dtype in ((1, torch.float32), (2, torch.bfloat16)):
        record(f"quietstar-{number}", partial(_carried, dtype))


def _carried(dtype: torch.dtype, folder: Path) -> list[Envelope]:
    """Return the rows of a run of a model of a dtype, carried out in a folder."""
    home, (model, _) = Home(folder / "home"), toy_models.family(folder, 0, dtype)
    quietstar_runs.submit(home, model)
    quietstar_runs.finish(home)
    return quietstar_runs.rows(home)


if __name__ == "__main__":
    main()
