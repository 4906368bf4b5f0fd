"""A run whose trainings are not known yet tells no time that is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from events import Envelope
from runs import kinds
from runs.kinds.state import fold_into

GOLDEN = Path(__file__).parents[2] / "golden"
LOGS = sorted(GOLDEN.glob("bake-*.jsonl"))


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_before_the_replies_of_a_bake_are_sampled_no_time_is_known(log: Path) -> None:
    """It was "99 % of the time, 1 s left" while the longest task ran."""
    rows = [Envelope(**json.loads(line)) for line in log.read_text("utf-8").splitlines()]
    kind: Any = kinds.of("bake")
    told = 0
    for count in range(1, len(rows) + 1):
        state = fold_into(kind.state(), rows[:count])
        if state.started is None or kind.trainings(state) or state.completed:
            continue
        told += 1
        seen = kind.outlook(state, None)
        assert seen.eta_s is None
    assert told
