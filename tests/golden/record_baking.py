"""Write the golden logs of baking runs: `python -m tests.golden.record_baking`. None twice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from runs.home import Home
from testing.miniatures import baking_runs
from tests.golden.test_golden_kinds import FOLDER, told

#: Repairs that fit into the toy's 96 tokens.
REPAIRS = [
    {
        "id": f"r{number}",
        "issue": f"f {number}",
        "files": [{"name": "a.py", "text": f"def f(x):\n  return x-{number}\n"}],
        "tests": [f"assert f(1) == {1 + number}"],
        "fix": [{"file": "a.py", "line": 2, "text": f"return x+{number}"}],
    }
    for number in range(1, 41)
]
RUNS: dict[str, dict[str, Any]] = {
    "baking-1": {},
    "baking-2": {"train": "lora", "lora_rank": 4},
    "baking-3": {"repairs": REPAIRS},
}


def main() -> None:
    """Write a run of both cycles, one of both by adapters, and one with repairs of the user's own."""
    for name, settings in RUNS.items():
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
