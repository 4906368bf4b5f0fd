"""The time that a bake has left: not told too early, and with all that is still to be measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge.events import Envelope
from agent_forge.runs import kinds
from agent_forge.runs.kinds.state import fold_into
from agent_forge.studies.training_plan import as_float32

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
        seen = kind.view.outlook(state, None)
        assert seen.eta_s is None
    assert told


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_what_a_bake_measures_at_its_end_is_expected_before_its_result_is_chosen(log: Path) -> None:
    """The time left quadrupled when the last measurements became known."""
    rows = [Envelope(**json.loads(line)) for line in log.read_text("utf-8").splitlines()]
    kind: Any = kinds.of("bake")
    trained = next(n for n, row in enumerate(rows) if row.type == "advanced") + 1
    expected = {task.key for task in kind.observations(fold_into(kind.state(), rows[:trained]))}
    ended = fold_into(kind.state(), rows)
    given = as_float32(ended.started).id
    asked = kind.observations(ended)
    of_given = {task.key for task in asked if (task.on, task.recipe_id) == ("test", given)}
    assert of_given
    assert of_given <= expected
