"""Write the golden log of a quietstar run: `python -m tests.golden.record_quietstar`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from runs.home import Home
from testing.miniatures import quietstar_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a run for each schema; logs that are there stay."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model, _ = toy_models.family(folder, 0)
        path = FOLDER / "quietstar-1.jsonl"
        if path.exists():
            return
        home = Home(folder / path.stem)
        quietstar_runs.submit(home, model)
        quietstar_runs.finish(home)
        rows = quietstar_runs.rows(home)
        lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", "utf-8")
        path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
