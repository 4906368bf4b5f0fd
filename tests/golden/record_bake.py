"""Write the golden logs of bakes: `python -m tests.golden.record_bake`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from runs.home import Home
from testing.miniatures import bake_runs
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a bake beside a prompt that is kept, one of two prompts in a row, and one by adapters."""
    own = {"bake-1": {}, "bake-2": bake_runs.SEVERAL, "bake-3": bake_runs.ADAPTED}
    for name, settings in own.items():
        if not (FOLDER / f"{name}.jsonl").exists():
            _write(FOLDER / f"{name}.jsonl", settings)


def _write(path: Path, settings: dict[str, Any]) -> None:
    """Carry a run out, and write its rows and what they fold to."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = bake_runs.model(folder)
        home = Home(folder / "home")
        bake_runs.submit(home, model, **settings)
        bake_runs.finish(home)
        rows = bake_runs.rows(home)
    lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
