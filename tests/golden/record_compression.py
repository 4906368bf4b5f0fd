"""Write the golden logs of compressions: `python -m tests.golden.record_compression`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from events import Envelope
from runs.home import Home
from testing.miniatures import compression_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import FOLDER, told


def rows(folder: Path, taught: bool, overflows: bool) -> list[Envelope]:
    """Return a run with mixtures, of a model with a matrix that 16 bits do not hold.

    `taught`: with a student. `overflows`: instead, of a model that some codes make give NaN.
    """
    model, _ = toy_models.family(folder, 0)
    if overflows:
        large = compression_runs.overflowing(model, folder / "large")
    else:
        large = compression_runs.with_weight(model, folder / "large", "q_proj", 1e5)
    students = [compression_runs.student(folder)] if taught else []
    home = Home(folder / "home")
    compression_runs.submit(home, large, compression_runs.data(folder), students=students)
    compression_runs.finish(home)
    return compression_runs.rows(home)


def main() -> None:
    """Write a run of one model, one with a student, and one with points that cannot be measured."""
    runs = {
        "compression-1": (False, False),
        "compression-2": (True, False),
        "compression-3": (False, True),
    }
    for name, (taught, overflows) in runs.items():
        path = FOLDER / f"{name}.jsonl"
        if path.exists():
            continue
        with tempfile.TemporaryDirectory() as place:
            found = rows(Path(place), taught, overflows)
        lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in found]
        path.write_text("\n".join(lines) + "\n", "utf-8")
        path.with_suffix(".json").write_text(json.dumps(told(found), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
