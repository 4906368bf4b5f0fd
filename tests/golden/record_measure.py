"""Write a golden log of a measurement without a pipeline: `python -m tests.golden.record_measure 2`.

Toy models on a few documents; the measurement of a pipeline's phase is written by `record_pipeline`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from runs.history import repository
from runs.home import Home
from testing.models import toy_models
from testing.models.toys import Toys
from tests.golden.record_pipeline import write
from tests.golden.test_golden_kinds import FOLDER
from tests.integration.phases.test_measure import TEXTS, asked, carried


def main() -> None:
    """Carry the measurement to its end and write its log."""
    name = f"measure-{sys.argv[1]}"
    if (FOLDER / f"{name}.jsonl").exists():
        raise SystemExit(f"{name} is recorded already: choose another number")
    with tempfile.TemporaryDirectory() as folder:
        base, sources = toy_models.family(Path(folder) / "models")
        data = Path(folder) / "texts.jsonl"
        data.write_text("".join(json.dumps(text) + "\n" for text in TEXTS), "utf-8")
        home = Home(Path(folder) / "home")
        carried(home, asked(Toys(base, tuple(sources), data), data))
        with closing(home.open_store()) as store:
            write(name, list(repository.history(store, "m")))


if __name__ == "__main__":
    main()
