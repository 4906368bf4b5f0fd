"""Toy runs on real workers: the queue, the devices and their processes know no kind of run.

`test_cluster.py` does the same to merging runs: most of it only in `make soak`, since a toy task
loads no model and one worker serves most of these tests.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import delete

from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from agent_forge.runs.record.events import Paused
from agent_forge.worker.commands.control import control
from agent_forge.worker.queue.celery_wakeup import make_app, queue_of
from agent_forge.worker.queue.leases import LEASES
from testing.services.cluster import Cluster
from testing.toy import toy_runs
from testing.toy.toy_kind import KNOWN
from testing.toy.toy_state import ToyState

#: Tasks long enough to be met under way.
SETTINGS = {"steps": 2, "width": 4, "slow": 0.3}


@pytest.fixture(autouse=True)
def toy_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the toy kind to this process."""
    monkeypatch.setenv(FURTHER, KNOWN)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Redis and a worker of two devices, for all tests that leave them alive."""
    made = Cluster(tmp_path_factory.mktemp("shared"), env={FURTHER: KNOWN})
    made.worker("--concurrency", "2")
    made.wait(lambda: [d.status for d in made.devices()] == ["idle", "idle"])
    yield made
    made.close()


def ended(cluster: Cluster, run: str) -> ToyState:
    """Wait for the run's end; return its state, once it is completed and its history is honest."""
    state = cluster.wait(lambda: (s := toy_runs.state(cluster.home, run)).ended and s)
    assert state.status == "completed", cluster.logs()
    rows = toy_runs.rows(cluster.home, run)
    assert audit.audit(rows) == []
    assert max(Counter(row.key for row in rows).values()) == 1
    assert not state.divergences
    return state


def same(cluster: Cluster, run: str, tmp_path: Path) -> None:
    """The run ends as one process in another home carries it, and no process died at a task."""
    state = ended(cluster, run)
    alone = Home(tmp_path / "alone")
    toy_runs.submit(alone, run, **SETTINGS)
    assert toy_runs.finish(alone, run).lineage_digest() == state.lineage_digest()
    assert not state.deaths


def busy_with(cluster: Cluster, run: str) -> None:
    """Wait until a device is at a task of the run other than its start."""
    cluster.wait(lambda: any(d.run == run and d.task != "start" for d in cluster.devices()))


@pytest.mark.slow
def test_two_devices_share_a_run(shared: Cluster, tmp_path: Path) -> None:
    toy_runs.submit(shared.home, "both", **SETTINGS)
    same(shared, "both", tmp_path)
    rows = [row for row in toy_runs.rows(shared.home, "both") if row.type == "counted"]
    assert len({row.actor for row in rows}) == 2


@pytest.mark.slow
def test_redis_may_die_come_back_empty_and_be_flushed_at_any_time(
    shared: Cluster, tmp_path: Path
) -> None:
    """Messages are hints: without a broker the devices look for themselves."""
    toy_runs.submit(shared.home, "r", **SETTINGS)
    busy_with(shared, "r")
    shared.redis.kill()
    before = len(toy_runs.rows(shared.home, "r"))
    shared.wait(
        lambda: (
            len(toy_runs.rows(shared.home, "r")) >= before + 3 or toy_runs.state(shared.home, "r").ended
        )
    )
    shared.redis.start()
    while not toy_runs.state(shared.home, "r").ended:
        with shared.redis.client() as client:
            client.flushall()
        time.sleep(0.1)
    same(shared, "r", tmp_path)


@pytest.mark.slow
def test_messages_may_be_doubled_dropped_and_invented(shared: Cluster, tmp_path: Path) -> None:
    """A message that names no open task, or one under way, starts nothing."""
    toy_runs.submit(shared.home, "m", **SETTINGS)
    queues = [queue_of(device.name) for device in shared.devices()]
    rng, tasks = random.Random(1), ["start", "count/0/1", "count/9/9", "completed"]
    with closing(make_app(shared.redis.url)) as app:
        while not toy_runs.state(shared.home, "m").ended:
            if rng.random() < 0.5:
                with shared.redis.client() as client:
                    client.lpop(rng.choice(queues))
            words = [rng.choice(queues).removeprefix("forge."), "m", rng.choice(tasks)]
            for _ in range(rng.randint(0, 3)):
                app.send_task("forge.hint", words, queue=rng.choice(queues))
            time.sleep(0.02)
    same(shared, "m", tmp_path)


@pytest.mark.slow
def test_a_cancelled_run_lets_go_of_its_devices_and_a_paused_one_waits(
    shared: Cluster, tmp_path: Path
) -> None:
    """The task of a cancelled run is not waited for: it would take an hour."""
    toy_runs.submit(shared.home, "p", **SETTINGS)
    with closing(shared.home.open_store()) as store:  # a command's process may begin after p has ended
        control(store, "p", Paused())
    toy_runs.submit(shared.home, "c", slow=3600)
    shared.wait(lambda: any(d.run == "c" for d in shared.devices()))
    shared.forge("cancel", "c")
    shared.wait(lambda: all(d.status == "idle" for d in shared.devices()))
    assert toy_runs.state(shared.home, "c").status == "cancelled"
    before = toy_runs.state(shared.home, "p").place
    time.sleep(1)
    assert toy_runs.state(shared.home, "p").place == before
    shared.forge("resume", "p")
    ended(shared, "p")


@pytest.mark.slow
def test_a_poisonous_task_is_quarantined(shared: Cluster) -> None:
    """Each death of a process is recorded by its parent; after three the run goes on without."""
    toy_runs.submit(shared.home, "poison", "worst-fitness", poison="count/0/1")
    poison = ended(shared, "poison")
    assert list(poison.quarantined) == ["count/0/1"]
    assert poison.deaths["count/0/1"].attempt == 3
    assert "count/0/1" not in poison.answers
    assert len(poison.answers) == 5


@pytest.mark.slow
def test_two_dispatchers_at_once_are_harmless(shared: Cluster, tmp_path: Path) -> None:
    """The lease is taken away from the worker that has it, which believes in it for a while."""
    shared.worker()
    shared.wait(lambda: sum(d.status == "idle" for d in shared.devices()) == 3)
    toy_runs.submit(shared.home, "d", **SETTINGS)
    busy_with(shared, "d")
    with closing(shared.home.open_store()) as store:
        while not toy_runs.state(shared.home, "d").ended:
            with store.database.writing() as connection:
                connection.execute(delete(LEASES).where(LEASES.c.task == "@dispatcher"))
            time.sleep(0.1)
    same(shared, "d", tmp_path)
