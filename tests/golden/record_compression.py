"""Write the golden log of a compression: `python -m tests.golden.record_compression`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from runs.home import Home
from testing.models import toy_models
from testing.worlds import compression_runs
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a run with mixtures, and with a matrix that 16 bits do not hold."""
    path = FOLDER / "compression-1.jsonl"
    if path.exists():
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model, _ = toy_models.family(folder, 0)
        large = compression_runs.with_weight(model, folder / "large", "q_proj", 1e5)
        home = Home(folder / "home")
        compression_runs.submit(home, large, compression_runs.data(folder))
        compression_runs.finish(home)
        rows = compression_runs.rows(home)
    lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
