"""Toy pipelines on real workers: children are queued, and the dispatcher wakes their parent."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent_forge.pipeline.events import PipelineState
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from testing.services.cluster import Cluster, kill
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_kind import KNOWN
from testing.toy.toy_pipelines import phase

#: Tasks long enough to be met under way.
PHASES = [
    phase("first", {"metric": "total", "at_least": 1}, steps=2, width=2, slow=0.2, seed=1),
    phase("second", steps=2, width=2, slow=0.2, seed=2),
]


@pytest.fixture(autouse=True)
def toy_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the toy kind to this process."""
    monkeypatch.setenv(FURTHER, KNOWN)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Redis and a worker of one device, for all tests that leave them alive."""
    made = Cluster(tmp_path_factory.mktemp("shared"), env={FURTHER: KNOWN})
    made.worker()
    made.wait(lambda: [d.status for d in made.devices()] == ["idle"])
    yield made
    made.close()


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lineage digest of the pipeline when one process carries it alone."""
    home = Home(tmp_path_factory.mktemp("alone"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FURTHER, KNOWN)
        toy_pipelines.submit(home, PHASES)
        return toy_runs.finish(home, "p").lineage_digest()


def ended(cluster: Cluster, run: str) -> PipelineState:
    """Wait for a pipeline's end; return its state, once its and its children's logs are honest."""
    state = cluster.wait(lambda: (s := toy_runs.state(cluster.home, run)).ended and s)
    assert isinstance(state, PipelineState)
    assert state.status == "completed", cluster.logs()
    for name in (run, f"{run}.1-first", f"{run}.2-second"):
        assert audit.audit(toy_runs.rows(cluster.home, name)) == []
    return state


@pytest.mark.slow
def test_one_device_is_enough_and_the_end_is_that_of_one_process(shared: Cluster, digest: str) -> None:
    """A pipeline that waited on its device would wait for ever."""
    toy_pipelines.submit(shared.home, PHASES)
    assert ended(shared, "p").lineage_digest() == digest


@pytest.mark.slow
def test_two_pipelines_of_two_users_share_one_device_fairly(shared: Cluster) -> None:
    """Neither waits for the other's end: their children's tasks take turns.

    The device is busy with another run until both are there.
    """
    toy_runs.submit(shared.home, "before", slow=3600)
    shared.wait(lambda: any(d.run == "before" for d in shared.devices()))
    for owner in ("ada", "bob"):
        toy_pipelines.submit(shared.home, PHASES, f"of-{owner}", by=owner)
    shared.forge("cancel", "before")
    for owner in ("ada", "bob"):
        ended(shared, f"of-{owner}")
    rows = [
        row
        for owner in ("ada", "bob")
        for name in ("1-first", "2-second")
        for row in toy_runs.rows(shared.home, f"of-{owner}.{name}")
        if row.type == "counted"
    ]
    order = [row.stream.split(".")[0] for row in sorted(rows, key=lambda row: row.position)]
    assert len(order) == 16
    half = order[:8]
    assert 3 <= half.count("toy/of-ada") <= 5, order


@pytest.mark.slow
def test_a_pipeline_is_paused_and_cancelled_with_its_child(shared: Cluster) -> None:
    toy_pipelines.submit(shared.home, [phase("first", slow=3600), PHASES[1]], "c")
    shared.wait(lambda: any(d.run == "c.1-first" for d in shared.devices()))
    shared.forge("cancel", "c")
    shared.wait(lambda: all(d.status == "idle" for d in shared.devices()))
    assert toy_runs.state(shared.home, "c.1-first").status == "cancelled"
    assert toy_runs.state(shared.home, "c").status == "cancelled"


@pytest.mark.slow
def test_a_failed_child_fails_its_queued_pipeline_and_a_retry_goes_on(shared: Cluster) -> None:
    toy_pipelines.submit(shared.home, [phase("first", failing="count/0/0"), PHASES[1]], "f")
    for troubles in (1, 2):
        shared.wait(lambda: toy_runs.state(shared.home, "f").failed)
        assert len(toy_runs.state(shared.home, "f").troubles(1)) == troubles
        shared.forge("retry", "f")
    assert "phase first" in shared.wait(lambda: toy_runs.state(shared.home, "f").failed).reason


@pytest.mark.slow
@pytest.mark.soak
def test_workers_die_and_come_back_and_the_end_is_the_same(tmp_path: Path, digest: str) -> None:
    """Forty kills at random moments, of either of two workers."""
    cluster, rng = Cluster(tmp_path, env={FURTHER: KNOWN}), random.Random(5)
    with closing(cluster):
        cluster.worker()
        cluster.worker()
        for number in range(10):
            run = f"p{number}"
            toy_pipelines.submit(cluster.home, PHASES, run)
            for _ in range(4):
                time.sleep(rng.uniform(0.5, 4.0))
                kill(cluster.workers.pop(rng.randrange(2)))
                cluster.worker()
            assert ended(cluster, run).lineage_digest() == digest
