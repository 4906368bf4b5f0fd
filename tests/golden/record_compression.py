"""Write the golden logs of compressions: `python -m tests.golden.record_compression`. None twice."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from agent_forge.events import Envelope
from agent_forge.runs.home import Home
from testing.miniatures import compression_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import record


def rows(folder: Path, taught: bool, overflows: bool, even: bool) -> list[Envelope]:
    """Return a run with mixtures, of a model with a matrix that 16 bits do not hold.

    `taught`: with a student. `overflows`: instead, of a model that some codes make give NaN. `even`: no
    domain may lose more than 5 %.
    """
    model, _ = toy_models.family(folder, 0)
    if overflows:
        large = compression_runs.overflowing(model, folder / "large")
    else:
        large = compression_runs.with_weight(model, folder / "large", "q_proj", 1e5)
    students = [compression_runs.student(folder)] if taught else []
    home = Home(folder / "home")
    data, more = compression_runs.data(folder), {"regression": 0.05} if even else {}
    compression_runs.submit(home, large, data, students=students, **more)
    compression_runs.finish(home)
    return compression_runs.rows(home)


def main() -> None:
    """Write a run for each schema and kind of point."""
    runs = {
        "compression-1": (False, False, False),
        "compression-2": (True, False, False),
        "compression-3": (False, True, False),
        "compression-4": (False, False, True),
    }
    for name, (taught, overflows, even) in runs.items():
        record(name, partial(rows, taught=taught, overflows=overflows, even=even))


if __name__ == "__main__":
    main()
