"""Bitnet runs that are killed: the models have the same bits at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from testing.miniatures import bitnet_runs
from testing.models.toys import Toys
from testing.worlds.runs import was_killed
from testing.worlds.warm_process import Template


def soak(*values: object) -> Any:
    """Leave a case to `make soak`."""
    return pytest.param(*values, marks=pytest.mark.soak)


@pytest.fixture(scope="module")
def undisturbed(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> MakingState:
    """The run that nobody disturbs."""
    home = Home(tmp_path_factory.mktemp("quiet"))
    bitnet_runs.submit(home, toys.base)
    return bitnet_runs.finish(home)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "made-kept:6",
        "snapshot-kept:4",
        soak("made-kept:1"),
        soak("advanced-kept:3"),
        soak("publish-filled:3"),
        soak("publish-renamed:4"),
        soak("task-done:9"),
        soak("task-appended:5"),
        soak("append-committed:14"),
        soak("facts-appended:1"),
    ],
)
def test_killed_at_a_failpoint_a_run_ends_as_if_undisturbed(
    undisturbed: MakingState,
    toys: Toys,
    tmp_path: Path,
    warm: Template,
    point: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it rounds, trains with a teacher, packs or measures; in segments of two steps."""
    monkeypatch.setenv("FORGE_SEGMENT_STEPS", "2")
    home = Home(tmp_path)
    bitnet_runs.submit(home, toys.base)
    assert was_killed(warm.start(home, failpoints=f"kill:{point}")), "not reached"
    state = bitnet_runs.finish(home)
    assert state.status == "completed"
    assert state.lineage_digest() == undisturbed.lineage_digest()
    assert state.completed.models == undisturbed.completed.models
    assert audit.audit(bitnet_runs.rows(home)) == []
    assert not state.divergences
