"""Snapshots that a training leaves behind when its run is cancelled or fails, and forks of it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.phases.cognate.script import Cognate
from agent_forge.runs.errors import RunFailedError
from agent_forge.runs.home import Home
from agent_forge.runs.record.events import Retried
from agent_forge.studies.making import making
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training.objectives import OBJECTIVES
from agent_forge.worker.commands import fork, leftovers
from agent_forge.worker.commands.control import control
from testing.miniatures import bitnet_runs, cognate_runs
from testing.models.toys import Toys
from tests.integration.cli.test_forge import succeeds


@pytest.fixture
def begun(toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A run `r` in segments of some steps that is stopped in the middle of its training."""
    monkeypatch.setenv("FORGE_SEGMENT_STEPS", "5")
    home = Home(tmp_path)
    data = bitnet_runs.texts(tmp_path / "texts")
    short = {"specialist_tokens": 4_000, "batch": 2, "own_share": 1.0, "domains": ["sums"]}
    cognate_runs.submit(home, "r", toys.base, data, **short)
    cognate_runs.carry_until(home, lambda now: bool(advanced(now)))
    return home


def advanced(state: Any) -> list[Any]:
    """The segments that a run's training has done."""
    return [event for events in state.advanced.values() for _, event in sorted(events.items())]


def kept(home: Home) -> list[Path]:
    """The folders of snapshots on disk."""
    return sorted(home.artifacts.glob("snapshots/*/*"))


def test_the_snapshots_of_a_cancelled_run_go(begun: Home) -> None:
    """Two of them stayed for ever, and no disk budget saw them."""
    state = cognate_runs.state(begun)
    last = advanced(state)[-1].step
    told = Cognate().storage.resumes(state, Artifacts.of(begun))
    assert told == [f"the training of sums goes on from step {last}."]
    assert [making.runs(folder) for folder in kept(begun)] == [["r"]] * len(kept(begun))
    assert kept(begun)
    told = succeeds(begun.folder, "cancel", "r")
    assert kept(begun) == []


def test_they_stay_for_a_fork_that_goes_on(begun: Home) -> None:
    before = kept(begun)
    with closing(begun.open_store()) as store:
        place = len(cognate_runs.rows(begun))
        name = fork.fork(store, fork.plan(store, "r", place, None, {"max_hours": 9.0}))
        succeeds(begun.folder, "cancel", "r")
        assert kept(begun) == before
        succeeds(begun.folder, "cancel", name)
    assert kept(begun) == []


def test_a_process_that_finds_its_run_cancelled_removes_what_it_wrote(begun: Home) -> None:
    """The segment that was under way writes a snapshot after the cancellation."""
    from agent_forge.phases.cognate.work import Context
    from agent_forge.runs.record.events import Cancelled

    state = cognate_runs.state(begun)
    (task,) = plan_of(state)
    with closing(begun.open_store()) as store:
        control(store, "r", Cancelled())
    Context.opened(state, Artifacts.of(begun)).carry_out(task)
    assert kept(begun)
    cognate_runs.carry_until(begun, lambda now: False)
    assert kept(begun) == []


def plan_of(state: Any) -> list[Any]:
    """The open tasks of a run."""
    from agent_forge.runs import kinds

    return list(kinds.of("cognate").due(state).tasks)


def test_those_of_a_failed_run_stay_and_are_marked_until_it_is_tried_again(
    begun: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry goes on from the newest."""
    from agent_forge.weights.storage.weight_cache import ENDED

    steps = max(event.step for event in advanced(cognate_runs.state(begun)))
    with monkeypatch.context() as patch:
        patch.setitem(OBJECTIVES, "lm@1", "tests.integration.phases.test_watched:Gone")
        with pytest.raises(RunFailedError):
            cognate_runs.finish(begun)
    assert kept(begun)
    assert all((folder / ENDED).exists() for folder in kept(begun))
    with closing(begun.open_store()) as store:
        control(store, "r", Retried())
        leftovers.sweep(store, begun.artifacts)
    state = cognate_runs.carry_until(begun, lambda now: max(e.step for e in advanced(now)) > steps)
    assert state.failed is None
    assert not any((folder / ENDED).exists() for folder in kept(begun))


@pytest.mark.slow
def test_a_fork_in_the_middle_of_a_training_ends_with_the_same_digests(begun: Home, toys: Toys) -> None:
    """From a step that is not kept: earlier steps are trained again, and meet what is recorded."""
    whole = cognate_runs.finish(begun)
    events = advanced(whole)
    assert len(events) > 3
    rows = cognate_runs.rows(begun)
    place = [i for i, row in enumerate(rows, 1) if row.type == "advanced"][1]
    words = ("fork", "r", "--at", str(place), "--set", "max_device_hours=9.0", "--record-only")
    told = succeeds(begun.folder, *words, "--json")
    assert f"the training of sums goes on from step {events[1].step}: its snapshot" in told.stderr
    assert "it is trained again from its first step on" in told.stderr
    name = json.loads(told.stdout)["run"]
    assert kept(begun) == []
    forked = cognate_runs.finish(begun, name)
    for event, again in zip(events, advanced(forked), strict=False):
        if event.step == again.step:
            assert (event.digest, event.optimiser) == (again.digest, again.optimiser)
    assert advanced(forked)[:2] == events[:2]
    recipe = Cognate().named(forked)["sums"]
    assert forked.made[recipe.id].digest == whole.made[recipe.id].digest
    assert forked.completed.models == whole.completed.models
