"""Crash walk of a training in the queue: every failpoint, random kills, the cache kept and emptied."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.studies.making.making import MakingState
from testing.miniatures import cognate_runs
from testing.services.cluster import Cluster, children, kill
from tests.acceptance.phases.test_cognate_kills import quiet, short_segments

#: Every failpoint that a queued training passes, in its workers and in the processes of its devices.
POINTS = (
    "append-began",
    "append-inserted",
    "append-committed",
    "projection-made",
    "projection-read",
    "projection-applied",
    "facts-decided",
    "facts-appended",
    "task-claimed",
    "task-done",
    "task-appended",
    "made-kept",
    "segment-trained",
    "snapshot-kept",
    "advanced-kept",
    "publish-begun",
    "publish-filled",
    "publish-synced",
    "publish-renamed",
)
#: Runs of the random walk and kills in each: fifty kills in all. Of a device's process there are two at
#: most, since a task whose process dies three times is quarantined.
RUNS, KILLS, DEATHS = 10, 5, 2
__all__ = ["quiet", "short_segments"]
pytestmark = [pytest.mark.slow, pytest.mark.soak]
caches = pytest.mark.parametrize("emptied", [False, True], ids=["kept", "emptied"])


@pytest.fixture
def cluster(quiet: Home, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that has the text and no workers yet."""
    cluster = Cluster(tmp_path)
    cognate_runs.share_text(quiet, cluster.home)
    yield cluster
    cluster.close()


def alive(cluster: Cluster, **env: str) -> None:
    """Start workers, so that two are alive."""
    cluster.workers = [worker for worker in cluster.workers if worker.poll() is None]
    while len(cluster.workers) < 2:
        cluster.worker(**env)


def ended(cluster: Cluster) -> MakingState:
    """Wait for the end of the run; start a worker for each that has died."""

    def found() -> MakingState | None:
        alive(cluster)
        state = cognate_runs.state(cluster.home)
        return state if state.ended else None

    return cluster.wait(found, pause=0.2)


def same(cluster: Cluster, quiet: Home, state: MakingState) -> None:
    """The run has ended as the undisturbed one, and its history is honest and has no task twice."""
    expected = cognate_runs.state(quiet)
    assert state.status == "completed", (state.failed, cluster.logs())
    assert {id_: made.digest for id_, made in state.made.items()} == {
        id_: made.digest for id_, made in expected.made.items()
    }
    assert state.lineage_digest() == expected.lineage_digest()
    rows = cognate_runs.rows(cluster.home, state.run)
    assert audit.audit(rows) == []
    assert max(Counter(row.key for row in rows).values()) == 1
    assert not state.divergences


def test_the_walk_knows_every_failpoint_that_a_queued_training_passes(
    cluster: Cluster, quiet: Home, tmp_path: Path
) -> None:
    """A failpoint that is new must be walked, too; the run itself ends as in one process."""
    trace = tmp_path / "trace"
    alive(cluster, FORGE_FAILPOINTS=f"trace:{trace}")
    cognate_runs.submit(cluster.home)
    same(cluster, quiet, ended(cluster))
    assert set(trace.read_text().split()) == set(POINTS)


@caches
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_or_its_process_is_killed_at_a_failpoint(
    cluster: Cluster, quiet: Home, tmp_path: Path, point: str, emptied: bool
) -> None:
    """The first to pass it, of two workers and their processes. An empty cache greets new workers."""
    mark = tmp_path / "mark"
    deadly = {"FORGE_FAILPOINTS": f"once:{mark}:{point}:1"}
    cognate_runs.submit(cluster.home)
    alive(cluster, **deadly)
    cluster.wait(mark.exists)
    if emptied:
        for worker in cluster.workers:
            kill(worker)
        shutil.rmtree(cluster.home.artifacts, ignore_errors=True)
    same(cluster, quiet, ended(cluster))


@caches
@pytest.mark.parametrize("seed", range(RUNS))
def test_killed_at_random_moments_a_queued_training_ends_the_same(
    cluster: Cluster, quiet: Home, seed: int, emptied: bool
) -> None:
    """Workers and processes are killed; the cache is taken from under the other worker's hands."""
    rng, kills, deaths = random.Random(seed), 0, 0
    cognate_runs.submit(cluster.home)
    for _ in range(KILLS):
        alive(cluster)
        before = cognate_runs.state(cluster.home).version
        cluster.wait(lambda at=before: _went_on(cluster, at), pause=0.1)
        time.sleep(rng.uniform(0, 1.5))
        kills += not cognate_runs.state(cluster.home).ended
        worker = rng.choice(cluster.workers)
        found = children(worker)
        if found and deaths < DEATHS and rng.random() < 0.5:
            deaths += 1
            with suppress(ProcessLookupError):
                os.kill(rng.choice(found), signal.SIGKILL)
        else:
            kill(worker)
        if emptied:
            shutil.rmtree(cluster.home.artifacts, ignore_errors=True)
    same(cluster, quiet, ended(cluster))
    assert kills == KILLS, "some came after the end"


def _went_on(cluster: Cluster, version: int) -> bool:
    """Return True if the run has ended, or has an event after that version."""
    state = cognate_runs.state(cluster.home)
    return state.ended or state.version > version
