"""Write the golden log of a tuning: `python -m tests.golden.record_tune`. None twice."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from agent_forge.events import Envelope
from agent_forge.runs.home import Home
from testing.miniatures import tune_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import record


def main() -> None:
    """Write runs of a model in bfloat16 with a round of own replies, by rewards and by preferences."""
    for name, further in {"tune-1": {}, "tune-2": {"learn_by": "preferences"}}.items():
        record(name, partial(_carried, further))


def _carried(further: dict[str, Any], folder: Path) -> list[Envelope]:
    """Return the rows of a run with further settings, carried out in a folder."""
    home, size = Home(folder / "home"), {"max_position_embeddings": tune_runs.CONTEXT}
    model, _ = toy_models.family(folder / "models", 0, torch.bfloat16, **size)
    settings = {**tune_runs.ROUNDS, "rounds": 1, "shots": 1, "strengths": [0.5], **further}
    tune_runs.submit(home, model, data=tune_runs.same_call(home.folder / "texts"), **settings)
    tune_runs.finish(home)
    return tune_runs.rows(home)


if __name__ == "__main__":
    main()
