"""Write the golden logs of bakes: `python -m tests.golden.record_bake`. None twice."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from agent_forge.events import Envelope
from agent_forge.runs.home import Home
from testing.miniatures import bake_runs
from tests.golden.test_golden_kinds import record


def main() -> None:
    """Write a bake beside a prompt that is kept, one of two prompts in a row, and one by adapters.

    The fourth is of a model in bfloat16, with a stop; the fifth as the first, since replies are written
    by passes of more rows; the sixth, since precision is determined at the start; the seventh ends with
    a bake on own replies.
    """
    own = {"bake-1": {}, "bake-2": bake_runs.SEVERAL, "bake-3": bake_runs.ADAPTED}
    own |= {"bake-4": {"stops": [0.5]}, "bake-5": {}, "bake-6": {}, "bake-7": bake_runs.SEVERAL}
    for name, settings in own.items():
        dtype = torch.bfloat16 if name == "bake-4" else torch.float32
        record(name, partial(_carried, settings, dtype))


def _carried(settings: dict[str, Any], dtype: torch.dtype, folder: Path) -> list[Envelope]:
    """Return the rows of a run of a model of a dtype, carried out in a folder."""
    home = Home(folder / "home")
    bake_runs.submit(home, bake_runs.model(folder, dtype), **settings)
    bake_runs.finish(home)
    return bake_runs.rows(home)


if __name__ == "__main__":
    main()
