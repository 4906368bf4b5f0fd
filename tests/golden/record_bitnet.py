"""Write golden logs of bitnet runs: `python -m tests.golden.record_bitnet`. None is written twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from agent_forge.runs.home import Home
from testing.miniatures import bitnet_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import FOLDER, told


def main() -> None:
    """Write a run with every arm and a teacher for each schema; logs that are there stay."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model, _ = toy_models.family(folder, 0)
        for number in (1, 2, 3):
            path = FOLDER / f"bitnet-{number}.jsonl"
            if path.exists():
                continue
            home = Home(folder / path.stem)
            bitnet_runs.submit(home, model)
            bitnet_runs.finish(home)
            rows = bitnet_runs.rows(home)
            lines = [json.dumps(row._asdict(), sort_keys=True, ensure_ascii=False) for row in rows]
            path.write_text("\n".join(lines) + "\n", "utf-8")
            path.with_suffix(".json").write_text(json.dumps(told(rows), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
