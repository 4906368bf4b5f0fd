"""Write golden logs of bitnet runs: `python -m tests.golden.record_bitnet`. None is written twice."""

from __future__ import annotations

from pathlib import Path

from agent_forge.events import Envelope
from agent_forge.runs.home import Home
from testing.miniatures import bitnet_runs
from testing.models import toy_models
from tests.golden.test_golden_kinds import record


def main() -> None:
    """Write a run with every arm and a teacher for each schema; logs that are there stay."""
    for number in (1, 2, 3):
        record(f"bitnet-{number}", _carried)


def _carried(folder: Path) -> list[Envelope]:
    """Return the rows of a run that is carried out in a folder."""
    home, (model, _) = Home(folder / "home"), toy_models.family(folder, 0)
    bitnet_runs.submit(home, model)
    bitnet_runs.finish(home)
    return bitnet_runs.rows(home)


if __name__ == "__main__":
    main()
