"""The run list says of every golden log what the head of its run says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs import kinds
from agent_forge.runs.kinds.state import fold_into
from agent_forge.runs.kinds.view import BLANK
from agent_forge.runs.panels.head import listed
from tests.golden.test_golden import rows_of

LOGS = sorted(Path(__file__).parent.glob("*.jsonl"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_result_in_the_list_is_the_one_in_the_head(path: Path) -> None:
    """With its metric, unit, direction and slice. Some kinds have it only once they have completed."""
    rows = rows_of(path)
    kind: Any = kinds.kind_of(rows[0].stream)
    entry, state = dict(BLANK), fold_into(kind.state(), rows)
    for _, event in kind.state.registry.load_each(rows):
        kind.view.row(entry, event)
    result = kind.view.head(state).result
    if result is None:
        assert entry["value"] is None
    elif state.completed or entry["value"] is not None:
        value = pytest.approx(result.value)
        assert {**entry, **listed(result.metric, value, result.on)} == entry
