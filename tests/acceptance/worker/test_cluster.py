"""Workers as real processes on a real Redis: whatever is done to them, the result is that of one quiet
process, no event is lost, no task is recorded twice, and nobody has to help.
"""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.history import audit
from agent_forge.runs.history.repository import history
from agent_forge.runs.home import Home
from agent_forge.worker.queue.celery_wakeup import make_app, queue_of
from testing.models.toys import Toys
from testing.services.cluster import LEASE, Cluster, children, kill
from testing.services.servers import Postgres
from testing.waiting import PATIENCE
from testing.worlds import runs

SETTINGS = {"generations": 0}


def soak(*values: object) -> Any:
    """Leave a case to `make soak`."""
    return pytest.param(*values, marks=pytest.mark.soak)


@pytest.fixture(scope="module")
def undisturbed(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> RunState:
    """The run as one quiet process carries it, with the threads that the workers have."""
    home = Home(tmp_path_factory.mktemp("undisturbed"))
    runs.submit(home, toys, **SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGE_THREADS", "1")
        return runs.finish(home)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """On SQLite, without workers yet."""
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def same(cluster: Cluster, undisturbed: RunState, run: str = "r") -> None:
    """The run ended as the undisturbed one, its history is sound, no task stands in it twice."""
    state = cluster.finish(run)
    assert state.completed is not None, (state.failed, cluster.logs())
    assert state.champion == undisturbed.champion
    assert state.lineage_digest() == undisturbed.lineage_digest()
    store = cluster.home.open_store()
    rows = list(history(store, run))
    store.close()
    assert [f for f in audit.audit(rows) if f.level == "error"] == []
    done = Counter(row.key for row in rows)
    assert max(done.values()) == 1
    assert not state.divergences


#: Kind of task → a failpoint within it, at which a worker of `cluster.held` waits; and the beginnings
#: of its tasks' keys: a baseline is built, too.
WITHIN = {"build": "build-computed", "evaluate": "evaluate-scored"}
KEYS = {"start": ("start",), "build": ("build/", "baseline/"), "evaluate": ("evaluate/",)}


def busy_with(cluster: Cluster, kind: str) -> str:
    """Wait until a device is at such a task, which ends soon unless it is held; the device."""

    def found() -> str | None:
        at = [d.name for d in cluster.devices() if d.task and d.task.startswith(KEYS[kind])]
        return at[0] if at else None

    return cluster.wait(found)


def worker_of(cluster: Cluster, device: str) -> int:
    """The pid of a device's worker."""
    owner = next(d.owner for d in cluster.devices() if d.name == device)
    return int(owner.split("/")[1])


@pytest.mark.smoke
@pytest.mark.slow
def test_two_workers_do_what_one_process_does(
    cluster: Cluster, toys: Toys, undisturbed: RunState
) -> None:
    cluster.worker()
    cluster.worker()
    cluster.wait(lambda: len([d for d in cluster.devices() if d.status == "idle"]) == 2)
    runs.submit(cluster.home, toys, **SETTINGS)
    same(cluster, undisturbed)
    actors = {row.actor for row in cluster.events() if row.type == "evaluated"}
    assert len(actors) == 2, "both have worked"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [soak("start"), "build", soak("evaluate")])
def test_a_worker_that_is_killed_loses_nothing(
    cluster: Cluster, toys: Toys, undisturbed: RunState, kind: str
) -> None:
    """Its lease is known to be a dead process's; the next one goes on at once."""
    first = cluster.worker(**cluster.held(WITHIN.get(kind, "none")))
    runs.submit(cluster.home, toys, **SETTINGS)
    busy_with(cluster, kind)
    kill(first)
    cluster.worker()
    same(cluster, undisturbed)
    assert "task_died" not in {row.type for row in cluster.events()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "deaths"),
    [
        soak("build-computed", 1),
        soak("evaluate-scored", 1),
        soak("task-done", 1),
        soak("task-appended", 0),
    ],
)
def test_a_process_that_dies_at_its_task_is_replaced_and_counted(
    cluster: Cluster, toys: Toys, undisturbed: RunState, tmp_path: Path, place: str, deaths: int
) -> None:
    """As the out-of-memory killer does it; after the append there is nothing left to count."""
    cluster.worker(FORGE_FAILPOINTS=f"once:{tmp_path / 'mark'}:{place}:1")
    runs.submit(cluster.home, toys, **SETTINGS)
    same(cluster, undisturbed)
    assert (tmp_path / "mark").exists()
    died = [row for row in cluster.events() if row.type == "task_died"]
    assert len(died) == deaths
    assert all("SIGKILL" in row.data for row in died)


@pytest.mark.slow
@pytest.mark.soak
def test_a_poison_task_is_quarantined_and_fails_the_run_with_its_reason(
    cluster: Cluster, toys: Toys
) -> None:
    cluster.worker(FORGE_FAILPOINTS="kill:build-stored:1")
    runs.submit(cluster.home, toys, **SETTINGS)
    state = cluster.finish()
    assert state.failed is not None
    assert "quarantined" in state.failed.reason
    assert "SIGKILL" in state.failed.reason
    assert Counter(row.type for row in cluster.events())["task_died"] == 3


def stop(cluster: Cluster, everybody: list[int]) -> None:
    """SIGSTOP, at a moment when none of them is in the middle of a write.

    Whoever is holds the file until it goes on: that is how locks of files are.
    """

    def stopped_between_writes() -> bool:
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        cluster.wait(lambda: all(map(stands_still, everybody)))
        if is_free(cluster.home.database):
            return True
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
        return False

    cluster.wait(stopped_between_writes)


def stands_still(pid: int) -> bool:
    """Whether every thread of a process has stopped; a signal takes a moment to arrive."""
    states = [
        f.read_text().rpartition(")")[2].split()[0] for f in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


def is_free(path: Path) -> bool:
    """Whether anybody could write to a log now."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")  # a reader that was stopped is in the way of a commit
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


@pytest.mark.slow
def test_a_worker_that_was_stopped_past_its_lease_finishes_late_and_harmlessly(
    cluster: Cluster, toys: Toys, undisturbed: RunState
) -> None:
    """SIGSTOP to all of it; another takes its task; then SIGCONT."""
    cluster.lease = LEASE
    first = cluster.worker(**cluster.held(WITHIN["build"]))
    runs.submit(cluster.home, toys, **SETTINGS)
    busy_with(cluster, "build")
    everybody = [first.pid, *children(first)]
    stop(cluster, everybody)
    at = next((d.run, d.task) for d in cluster.devices())
    cluster.worker()
    if at[0]:
        cluster.wait(lambda: any(r.key == "/".join(map(str, at)) for r in cluster.events()))
    cluster.release()
    for pid in everybody:
        os.kill(pid, signal.SIGCONT)
    same(cluster, undisturbed)
    assert "task_died" not in {row.type for row in cluster.events()}
    cluster.wait(lambda: len([d for d in cluster.devices() if d.living]) == 2)


@pytest.mark.soak
@pytest.mark.slow
def test_redis_may_die_come_back_empty_and_be_flushed_at_any_time(
    cluster: Cluster, toys: Toys, undisturbed: RunState
) -> None:
    cluster.worker(**cluster.held(WITHIN["evaluate"]))
    runs.submit(cluster.home, toys, **SETTINGS)
    busy_with(cluster, "evaluate")
    cluster.redis.kill()
    before = len(cluster.events())
    cluster.release()
    cluster.wait(lambda: len(cluster.events()) >= before + 3)  # without any broker
    cluster.redis.start()
    rng = random.Random(0)
    while not cluster.state().ended:
        with cluster.redis.client() as client:
            client.flushall()
        time.sleep(rng.uniform(0, 0.2))
    same(cluster, undisturbed)


@pytest.mark.slow
@pytest.mark.soak
def test_messages_may_be_doubled_dropped_and_invented(
    cluster: Cluster, toys: Toys, undisturbed: RunState
) -> None:
    cluster.worker()
    cluster.worker()
    cluster.wait(lambda: len(cluster.devices()) == 2)
    runs.submit(cluster.home, toys, **SETTINGS)
    app = make_app(cluster.redis.url)
    queues = [queue_of(device.name) for device in cluster.devices()]
    rng = random.Random(1)
    tasks = ["start", "build/0/1", "evaluate/search/0/nonsense", "completed"]
    while not cluster.state().ended:
        what = rng.choice(["invent", "drop"])
        with cluster.redis.client() as client:
            if what == "drop":
                client.lpop(rng.choice(queues))
        if what == "invent":
            words = [rng.choice(queues).removeprefix("forge."), "r", rng.choice(tasks)]
            for _ in range(rng.randint(1, 3)):
                app.send_task("forge.hint", words, queue=rng.choice(queues))
        time.sleep(0.02)
    app.close()
    same(cluster, undisturbed)


@pytest.mark.soak
@pytest.mark.slow
def test_two_dispatchers_at_once_are_harmless(
    cluster: Cluster, toys: Toys, undisturbed: RunState
) -> None:
    """The lease is taken away from whoever has it, who goes on believing for a while."""
    from sqlalchemy import delete

    from agent_forge.worker.queue.leases import LEASES

    cluster.worker()
    cluster.worker()
    runs.submit(cluster.home, toys, **SETTINGS)
    busy_with(cluster, "start")
    store = cluster.home.open_store()
    while not cluster.state().ended:
        with store.database.writing() as connection:
            connection.execute(delete(LEASES).where(LEASES.c.task == "@dispatcher"))
        time.sleep(0.1)
    store.close()
    same(cluster, undisturbed)


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_no_reason_to_stop(
    cluster: Cluster, toys: Toys, undisturbed: RunState
) -> None:
    """A disk that takes no weights: what is not kept is built again."""
    cluster.home.artifacts.mkdir(parents=True)
    for number in range(256):  # weights are kept in folders of these names
        (cluster.home.artifacts / f"{number:02x}").write_text("not a folder")
    cluster.worker()
    runs.submit(cluster.home, toys, **SETTINGS)
    same(cluster, undisturbed)


@pytest.mark.slow
def test_ctrl_c_finishes_the_task_and_a_second_one_gives_it_back(
    cluster: Cluster, toys: Toys, undisturbed: RunState
) -> None:
    first = cluster.worker(**cluster.held(WITHIN["build"]))
    runs.submit(cluster.home, toys, **SETTINGS)
    device = busy_with(cluster, "build")
    assert worker_of(cluster, device) == first.pid
    first.send_signal(signal.SIGINT)
    cluster.release()
    assert first.wait(PATIENCE) == 0
    assert cluster.devices() == []
    assert "task_died" not in {row.type for row in cluster.events()}
    second = cluster.worker(**cluster.held(WITHIN["evaluate"]))
    busy_with(cluster, "evaluate")
    second.send_signal(signal.SIGTERM)
    cluster.wait(lambda: "again to give it back" in cluster.logs())  # two at once would be one
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE) == 0
    cluster.worker()
    same(cluster, undisturbed)
    assert "task_died" not in {row.type for row in cluster.events()}


@pytest.mark.slow
@pytest.mark.soak
def test_a_cancelled_run_lets_go_of_its_device(cluster: Cluster, toys: Toys) -> None:
    """Within seconds, not when the task would have ended."""
    cluster.worker(**cluster.held(WITHIN["build"]))
    runs.submit(cluster.home, toys, generations=30)
    runs.submit(cluster.home, toys, "paused", **SETTINGS)
    cluster.forge("pause", "paused")
    busy_with(cluster, "build")
    cluster.forge("cancel", "r")
    cluster.wait(lambda: all(d.status == "idle" for d in cluster.devices()))
    cluster.release()
    assert cluster.state().status == "cancelled"
    before = len(cluster.events("paused"))
    time.sleep(1)
    assert len(cluster.events("paused")) == before
    cluster.forge("resume", "paused")
    assert cluster.finish("paused").completed


@pytest.mark.slow
@pytest.mark.parametrize("skew", [soak(0), 3600, soak(-3600)])
def test_on_postgresql_with_clocks_that_disagree_and_a_server_that_restarts(
    tmp_path: Path, toys: Toys, undisturbed: RunState, skew: int
) -> None:
    """Leases are by the server's clock: an hour more or less on a worker makes no difference."""
    server = Postgres(tmp_path / "postgres")
    cluster = Cluster(tmp_path, server.new_database())
    (tmp_path / "skewed").mkdir()
    (tmp_path / "skewed" / "sitecustomize.py").write_text(
        f"import time\n_real = time.time\ntime.time = lambda: _real() + {skew}\n"
    )
    try:
        held = cluster.held(WITHIN["evaluate"])
        cluster.worker(PYTHONPATH=str(tmp_path / "skewed"), **held)
        cluster.worker(**held)
        runs.submit(cluster.home, toys, **SETTINGS)
        busy_with(cluster, "evaluate")
        cluster.release()
        if not skew:
            for _ in range(2):
                server.kill()
                time.sleep(0.5)
                server.start()
                before = len(cluster.events())
                cluster.wait(lambda before=before: len(cluster.events()) > before + 2)
        same(cluster, undisturbed)
    finally:
        cluster.close()
        server.stop()


@pytest.mark.slow
def test_users_share_by_weight_and_what_no_device_offers_waits(
    cluster: Cluster, toys: Toys, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a process does only once (compiling, importing) is somebody else's.
    monkeypatch.setenv("FORGE_USER", "early")
    runs.submit(cluster.home, toys, "early", generations=0)
    cluster.worker()
    assert cluster.wait(lambda: cluster.state("early").completed)
    cluster.forge("limits", "ada", "--weight", "3")
    for owner in ("ada", "bob"):
        monkeypatch.setenv("FORGE_USER", owner)
        for number in range(2):
            runs.submit(cluster.home, toys, f"{owner}-{number}", generations=3, seed=number)
    assert cluster.wait(lambda: cluster.state("ada-0").completed)
    store = cluster.home.open_store()
    rows = store.read_all(limit=10_000)
    store.close()
    seconds = {"ada": 0.0, "bob": 0.0}
    for row in rows:
        owner = row.stream.partition("/")[2].partition("-")[0]
        if owner in seconds and row.actor.startswith("worker/"):
            seconds[owner] += json.loads(row.data).get("seconds", 0.0)
    assert seconds["ada"] > 1.5 * seconds["bob"] > 0, seconds


@pytest.mark.soak
@pytest.mark.slow
def test_a_label_that_nobody_offers_makes_a_run_wait(cluster: Cluster, toys: Toys) -> None:
    from contextlib import closing

    from agent_forge.evomerge.config import parse
    from agent_forge.evomerge.submission import planned
    from agent_forge.weights.folders.sources import resolve
    from agent_forge.worker.commands import submit

    cluster.worker()
    with closing(cluster.home.open_store()) as store:
        sources = tuple(resolve(str(s)) for s in toys.sources)
        config = parse({**runs.SETTINGS, "generations": 0})
        plan = planned(config, sources, resolve(str(toys.base)), (str(toys.data),))
        submit.submit(store, plan, "picky", labels=("big",))
    cluster.wait(lambda: any(d.status == "idle" for d in cluster.devices()))
    time.sleep(LEASE)
    assert len(cluster.events("picky")) == 1
    cluster.worker("--queues", "big", "--only")
    assert cluster.finish("picky").completed
    done = {row.actor for row in cluster.events("picky") if row.type in ("started", "evaluated")}
    assert all(actor.endswith("cpu0.1") for actor in done)


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [soak(False), True])
def test_a_machine_without_models_and_data_gets_them_from_the_store(
    cluster: Cluster, toys: Toys, undisturbed: RunState, tmp_path: Path, sealed: bool
) -> None:
    """Two homes, one log, one store: the second has nothing but what the first put there."""
    away = tmp_path / "away"
    shutil.copytree(toys.base.parent, away / "models")
    shutil.copytree(toys.data, away / "data")
    sources = tuple(away / "models" / s.name for s in toys.sources)
    runs.submit(cluster.home, Toys(away / "models" / "base", sources, away / "data"), **SETTINGS)
    cluster.env["FORGE_ARTIFACT_STORE"] = f"file://{tmp_path / 'store'}"
    cluster.env["FORGE_DATABASE_URL"] = f"sqlite:///{cluster.home.database}"
    if sealed:
        cluster.env["FORGE_ARTIFACT_KEY"] = base64.b64encode(bytes(range(32))).decode()
    first = cluster.worker(**cluster.held(WITHIN["evaluate"]))
    busy_with(cluster, "evaluate")
    kill(first)
    shutil.rmtree(away)
    cluster.worker(FORGE_HOME=str(tmp_path / "another"))
    same(cluster, undisturbed)
    files = list((tmp_path / "store").rglob("model.safetensors"))
    assert len(files) >= 4
    readable = [b'"data_offsets"' in f.read_bytes() for f in files]  # in the header of safetensors
    assert readable == [not sealed] * len(files)


@pytest.mark.slow
def test_a_worker_that_lacks_the_models_says_so_and_leaves_the_run_to_others(
    cluster: Cluster, toys: Toys, undisturbed: RunState, tmp_path: Path
) -> None:
    away = tmp_path / "away"
    shutil.copytree(toys.base.parent, away)
    moved = Toys(away / "base", tuple(away / s.name for s in toys.sources), toys.data)
    runs.submit(cluster.home, moved, **SETTINGS)
    first = cluster.worker(**cluster.held(WITHIN["evaluate"]))
    busy_with(cluster, "evaluate")
    kill(first)
    away.rename(tmp_path / "elsewhere")
    shutil.rmtree(cluster.home.artifacts / "models")  # this machine's own copies
    cluster.worker()
    cluster.wait(lambda: "r: model base is not on this machine" in cluster.forge("workers"))
    assert "task_failed" not in {row.type for row in cluster.events()}
    (tmp_path / "elsewhere").rename(away)
    same(cluster, undisturbed)
