"""Trainings that are killed: whatever is done to a cognate run, its models have the same bits."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from agent_forge.phases.cognate import recipes
from agent_forge.phases.cognate.script import Cognate
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from testing.miniatures import cognate_runs
from testing.services.cluster import Cluster, kill
from testing.worlds.finished_run import FinishedTraining
from testing.worlds.runs import was_killed
from testing.worlds.warm_process import Template


def soak(*values: object) -> Any:
    """Leave a case to `make soak`."""
    return pytest.param(*values, marks=pytest.mark.soak)


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of 40 steps, so that every training has several."""
    monkeypatch.setenv("FORGE_SEGMENT_STEPS", "40")


@pytest.fixture(scope="module")
def quiet(finished_training: FinishedTraining) -> Home:
    """A home whose run nobody disturbs."""
    return finished_training()


@pytest.fixture(scope="module")
def undisturbed(quiet: Home) -> MakingState:
    """The run that nobody disturbs: how it is cut must not matter."""
    return cognate_runs.state(quiet)


@pytest.fixture
def home(quiet: Home, tmp_path: Path) -> Home:
    """A new home that has the text."""
    return cognate_runs.share_text(quiet, Home(tmp_path))


def same(home: Home, undisturbed: MakingState, state: MakingState | None = None) -> None:
    """The run ends as the undisturbed one, and its history is honest."""
    state = state or cognate_runs.finish(home)
    assert state.status == "completed"
    assert state.made.keys() == undisturbed.made.keys()
    assert state.lineage_digest() == undisturbed.lineage_digest()
    for id_, made in undisturbed.made.items():
        assert state.made[id_].digest == made.digest
    assert audit.audit(cognate_runs.rows(home)) == []
    assert not state.divergences


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        soak("made-kept:1"),
        "snapshot-kept:2",
        soak("advanced-kept:3"),
        soak("publish-filled:3"),
        soak("publish-renamed:4"),
        soak("task-done:4"),
        soak("task-appended:5"),
        soak("append-committed:6"),
        soak("facts-appended:1"),
    ],
)
def test_killed_at_a_failpoint_a_run_ends_as_if_undisturbed(
    undisturbed: MakingState, home: Home, warm: Template, point: str
) -> None:
    cognate_runs.submit(home)
    assert was_killed(warm.start(home, failpoints=f"kill:{point}")), "not reached"
    same(home, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["snapshot-kept:2", soak("task-appended:5")])
def test_a_titans_run_that_is_killed_ends_as_if_undisturbed(
    home: Home, tmp_path_factory: pytest.TempPathFactory, warm: Template, point: str
) -> None:
    """Optimiser and weights are all that lives between steps: a memory begins anew with every text."""
    settings = {"architecture": "titans-mag", "base_tokens": 8_000, "specialist_tokens": 6_000}
    quiet = Home(tmp_path_factory.mktemp("titans"))
    cognate_runs.submit(quiet, **settings)
    undisturbed = cognate_runs.finish(quiet)
    cognate_runs.submit(home, **settings)
    assert was_killed(warm.start(home, failpoints=f"kill:{point}")), "not reached"
    same(home, undisturbed)


@pytest.mark.slow
@pytest.mark.soak
def test_an_emptied_cache_costs_time_and_no_bit(
    undisturbed: MakingState, home: Home, warm: Template
) -> None:
    """Snapshots, results and prepared text are gone: the recorded digests are met again."""
    cognate_runs.submit(home)
    assert was_killed(warm.start(home, failpoints="kill:task-appended:7")), "not reached"
    shutil.rmtree(home.artifacts)
    same(home, undisturbed)


@pytest.mark.soak
@pytest.mark.slow
def test_a_damaged_snapshot_is_noticed_and_made_again(undisturbed: MakingState, home: Home) -> None:
    cognate_runs.submit(home)
    cognate_runs.carry_until(home, lambda s: any(len(a) >= 2 for a in s.advanced.values()))
    for file in home.artifacts.glob("snapshots/*/*/optimiser.safetensors"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    same(home, undisturbed)


@pytest.mark.slow
def test_specialists_are_trained_at_once_by_two_devices_one_of_which_is_killed(
    undisturbed: MakingState, tmp_path: Path
) -> None:
    """Queued: after the base, the three trainings are open at the same time."""
    cluster = Cluster(tmp_path)
    try:
        first = cluster.worker()
        cluster.worker()
        cognate_runs.submit(cluster.home)
        base = undisturbed.made[next(iter(Cognate().named(undisturbed).values())).id].recipe_id

        def specialists() -> set[str]:
            tasks = {d.task for d in cluster.devices() if d.task and d.task.startswith("make/")}
            state = cognate_runs.state(cluster.home)
            return tasks if base in state.made and len(tasks) == 2 else set()

        cluster.wait(specialists)
        kill(first)
        cluster.wait(lambda: cognate_runs.state(cluster.home).ended, pause=0.2)
        same(cluster.home, undisturbed, cognate_runs.state(cluster.home))
    finally:
        cluster.close()


@pytest.mark.slow
def test_another_machine_goes_on_from_the_last_segment_of_a_killed_one(
    undisturbed: MakingState, tmp_path: Path
) -> None:
    """Two homes, one log, one store: no segment of the dead worker is trained again."""
    cluster, trace, mark = Cluster(tmp_path), tmp_path / "trace", tmp_path / "mark"
    cluster.env["FORGE_SEGMENT_STEPS"] = "60"
    cluster.env["FORGE_ARTIFACT_STORE"] = f"file://{tmp_path / 'store'}"
    cluster.env["FORGE_DATABASE_URL"] = f"sqlite:///{cluster.home.database}"
    try:
        cognate_runs.submit(cluster.home)
        first = cluster.worker(FORGE_FAILPOINTS=f"once:{mark}:segment-trained:3")
        cluster.wait(mark.exists)
        kill(first)
        shutil.rmtree(cluster.home.artifacts)
        state = cognate_runs.state(cluster.home)
        base = Cognate().trainings(state)[recipes.BASE]
        assert 0 < state.steps(base) < base.upto
        cluster.worker(FORGE_HOME=str(tmp_path / "another"), FORGE_FAILPOINTS=f"trace:{trace}")
        cluster.wait(lambda: cognate_runs.state(cluster.home).ended, pause=0.2)
        same(cluster.home, undisturbed, cognate_runs.state(cluster.home))
        segments = [row for row in cognate_runs.rows(cluster.home) if row.type == "advanced"]
        assert trace.read_text().split().count("segment-trained") == len(segments) - 2 > 0
        names = (tmp_path / "store" / "manifests").iterdir()
        assert not [path.name for path in names if path.name.startswith("snapshot-")]
    finally:
        cluster.close()


@pytest.mark.slow
@pytest.mark.soak
def test_killed_at_random_moments_a_run_still_ends_the_same(
    undisturbed: MakingState, home: Home, warm: Template
) -> None:
    import random

    rng = random.Random(0)
    cognate_runs.submit(home)
    for _ in range(12):
        process = warm.start(home)
        time.sleep(rng.uniform(0.5, 4))
        process.kill()
        process.communicate()
    same(home, undisturbed)
