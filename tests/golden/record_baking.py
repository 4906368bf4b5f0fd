"""Write the golden logs of baking runs: `python -m tests.golden.record_baking`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from runs.home import Home
from testing.miniatures import baking_runs
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a run of both cycles, and one of both by adapters."""
    for name, settings in (("baking-1", {}), ("baking-2", {"train": "lora", "lora_rank": 4})):
        if not (FOLDER / f"{name}.jsonl").exists():
            _write(FOLDER / f"{name}.jsonl", settings)


def _write(path: Path, settings: dict[str, Any]) -> None:
    """Carry a run out, and write its rows and what they fold to."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = baking_runs.able(folder / "model")
        home = Home(folder / "home")
        baking_runs.submit(home, model, **settings)
        baking_runs.finish(home)
        rows = baking_runs.rows(home)
    lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
