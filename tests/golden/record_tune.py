"""Write the golden log of a tuning: `python -m tests.golden.record_tune`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

from agent_forge.runs.home import Home
from testing.miniatures import tune_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a run of a model in bfloat16 with a round of own replies. Logs that are there stay."""
    path = FOLDER / "tune-1.jsonl"
    if path.exists():
        return
    with tempfile.TemporaryDirectory() as place:
        home = Home(Path(place) / "home")
        size = {"max_position_embeddings": tune_runs.CONTEXT}
        model, _ = toy_models.family(Path(place) / "models", 0, torch.bfloat16, **size)
        settings = {**tune_runs.ROUNDS, "rounds": 1, "shots": 1, "strengths": [0.5]}
        tune_runs.submit(home, model, data=tune_runs.same_call(home.folder / "texts"), **settings)
        tune_runs.finish(home)
        rows = tune_runs.rows(home)
    lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
