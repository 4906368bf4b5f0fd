"""Toy runs on real workers: the queue, the devices and their processes know no kind of run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runs.history import audit
from runs.home import Home
from runs.kinds import FURTHER
from testing.services.cluster import Cluster
from testing.toy import toy_runs
from testing.toy.toy_kind import KNOWN
from testing.toy.toy_state import ToyState


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A Redis, and workers that know the toy kind."""
    monkeypatch.setenv(FURTHER, KNOWN)
    made = Cluster(tmp_path)
    yield made
    made.close()


def ended(cluster: Cluster, run: str) -> ToyState:
    """Wait for the run's end; return its state, once it is completed and its history is honest."""
    state = cluster.wait(lambda: (s := toy_runs.state(cluster.home, run)).ended and s, 180)
    assert state.status == "completed"
    assert audit.audit(toy_runs.rows(cluster.home, run)) == []
    return state


@pytest.mark.slow
def test_two_devices_share_a_run_and_a_poisonous_task_is_quarantined(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Each death of a process is recorded by its parent; after three the run goes on without."""
    settings = {"steps": 2, "width": 4, "slow": 0.3}
    cluster.worker("--concurrency", "2")
    cluster.wait(lambda: [d.status for d in cluster.devices()] == ["idle", "idle"])
    toy_runs.submit(cluster.home, "shared", **settings)
    shared = ended(cluster, "shared")
    rows = [row for row in toy_runs.rows(cluster.home, "shared") if row.type == "counted"]
    assert len({row.actor for row in rows}) == 2
    alone = Home(tmp_path / "alone")
    toy_runs.submit(alone, "shared", **settings)
    assert toy_runs.finish(alone, "shared").lineage_digest() == shared.lineage_digest()

    toy_runs.submit(cluster.home, "poison", "worst-fitness", poison="count/0/1")
    poison = ended(cluster, "poison")
    assert list(poison.quarantined) == ["count/0/1"]
    assert poison.deaths["count/0/1"].attempt == 3
    assert "count/0/1" not in poison.answers
    assert len(poison.answers) == 5
