"""Write golden logs of cognate runs: `python -m tests.golden.record_cognate`. None is written twice."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from agent_forge.evaluation.data.builtin import arithmetic, records
from agent_forge.events import Envelope
from agent_forge.runs.home import Home
from testing.miniatures import cognate_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import FOLDER, write

QUICK = {"specialist_tokens": 12_000, "batch": 4, "specialist_rate": 5e-3}


def texts(folder: Path) -> list[str]:
    """Write generated text of two domains; return the files."""
    made = {"sums": arithmetic.documents(60_000, 3), "rows": records.documents(60_000, 3)}
    for domain, documents in made.items():
        lines = (json.dumps({"text": document.text}) for document in documents)
        (folder / f"{domain}.jsonl").write_text("\n".join(lines), "utf-8")
    return [str(folder / f"{domain}.jsonl") for domain in made]


def carried(folder: Path, name: str, base: Path | None, **settings: Any) -> Sequence[Envelope]:
    """Return the rows of a run over the texts, carried to its end in segments of a few steps."""
    home = Home(folder / name)
    cognate_runs.submit(home, name, base, texts(folder), **{**QUICK, **settings})
    cognate_runs.finish(home, name)
    return cognate_runs.rows(home, name)


def main() -> None:
    """Write runs: from scratch with Muon, over a given base, sharded, checkpointed, of titans-mag, of a
    smaller vocabulary, of adapters, of averages of snapshots, over a given base in bfloat16.

    The first two were recorded with schema 1 of `submitted`; those that are there stay.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        base, _ = toy_models.family(folder, 0)
        halved, _ = toy_models.family(folder / "halved", 0, torch.bfloat16)
        runs = (
            ("scratch", None, {"base_tokens": 20_000, "optimiser": "mugrokfast"}),
            ("own", base, {}),
            ("sharded", base, {"processes": 2, "sharded": True}),
            ("checkpointed", base, {"checkpointing": True}),
            ("titans", None, {"base_tokens": 20_000, "architecture": "titans-mag", "recursions": 2}),
            ("vocabulary", None, {"base_tokens": 2_048, "specialist_tokens": 1_024, "vocabulary": 300}),
            ("adapters", base, {"train": "lora", "lora_rank": 4, "specialist_rate": 2e-2}),
            (
                "averaged",
                None,
                {
                    "base_tokens": 4_096,
                    "specialist_tokens": 2_048,
                    "average": 3,
                    "average_as": "1-sqrt",
                },
            ),
            ("halved", halved, {}),
        )
        for number, (name, given, settings) in enumerate(runs, start=1):
            if not (FOLDER / f"cognate-{number}.jsonl").exists():
                write(f"cognate-{number}", carried(folder, name, given, **settings))


if __name__ == "__main__":
    main()
