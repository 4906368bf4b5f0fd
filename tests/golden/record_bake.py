"""Write the golden log of a bake: `python -m tests.golden.record_bake`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from runs.home import Home
from testing.worlds import bake_runs
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a bake of one prompt beside another that is kept."""
    path = FOLDER / "bake-1.jsonl"
    if path.exists():
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = bake_runs.model(folder)
        home = Home(folder / "home")
        bake_runs.submit(home, model)
        bake_runs.finish(home)
        rows = bake_runs.rows(home)
    lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
