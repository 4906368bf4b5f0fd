"""Workers on machines that are taken away: they drain within the notice, and end without work."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs.history import audit
from agent_forge.runs.kinds import FURTHER
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.worker.commands import submit
from testing.services.cluster import Cluster
from testing.toy import divided_kind, toy_runs
from testing.waiting import PATIENCE
from tests.acceptance.worker.test_cluster import worker_of

pytestmark = pytest.mark.slow
#: Seconds of a piece: a task of twelve takes far longer than a drain may.
PIECE = 1.5
#: Seconds that no test waits for.
LONG = 2 * PATIENCE
DRAINING = ("--drain-on", "SIGTERM,USR1")


@pytest.fixture(autouse=True)
def divided_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the kind to this process."""
    monkeypatch.setenv(FURTHER, divided_kind.KNOWN)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without workers yet, in which parts of tasks take longer than a test."""
    made = Cluster(tmp_path, env={FURTHER: divided_kind.KNOWN, "FORGE_PART_SECONDS": "3600"})
    made.env[divided_kind.FILE] = str(tmp_path / "pieces")
    yield made
    made.close()


def begin(cluster: Cluster, slow: float = PIECE) -> None:
    """Submit a run of one task of twelve pieces."""
    plan = submit.plan(
        RunRequest("divided", {"steps": 1, "width": 1, "slow": slow / divided_kind.TIMES})
    )
    with closing(cluster.home.open_store()) as store:
        submit.submit(store, plan, "r")


def pieces_begun(cluster: Cluster) -> Counter[str]:
    """Return piece → how often it was begun."""
    file = cluster.folder / "pieces"
    return Counter(file.read_text().split() if file.exists() else [])


def at_piece(cluster: Cluster, count: int) -> None:
    """Wait until so many pieces were begun."""
    cluster.wait(lambda: pieces_begun(cluster).total() >= count)


def parts(cluster: Cluster) -> list[Any]:
    """Return the recorded parts of the run."""
    return [row for row in toy_runs.rows(cluster.home) if row.type == "part_done"]


def ended(process: subprocess.Popen[bytes]) -> int:
    """Return a worker's exit code, once it has ended."""
    return process.wait(PATIENCE)


def completes(cluster: Cluster) -> None:
    """Let a new worker finish the run; its history is sound and nobody's death stands in it."""
    cluster.worker()
    state = cluster.wait(lambda: (s := toy_runs.state(cluster.home)).ended and s)
    assert state.status == "completed", cluster.logs()
    rows = toy_runs.rows(cluster.home)
    assert audit.audit(rows) == []
    assert "task_died" not in {row.type for row in rows}


@pytest.mark.smoke
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_drained_worker_records_the_part_under_way(cluster: Cluster, number: signal.Signals) -> None:
    """Nothing is lost but seconds: the next worker goes on behind the part."""
    worker = cluster.worker(*DRAINING)
    begin(cluster)
    at_piece(cluster, 3)
    worker.send_signal(number)
    assert ended(worker) == 0
    assert len(parts(cluster)) == 1
    assert pieces_begun(cluster).total() < divided_kind.PIECES, "it waited for the task"
    assert cluster.devices() == []
    completes(cluster)
    assert set(pieces_begun(cluster).values()) == {1}


def test_a_worker_that_another_job_manager_restarts_exits_by_its_signal(cluster: Cluster) -> None:
    worker = cluster.worker(*DRAINING, "--signal-exit")
    cluster.wait(lambda: [d.status for d in cluster.devices()] == ["idle"])
    worker.send_signal(signal.SIGTERM)
    assert ended(worker) == 128 + signal.SIGTERM


def test_a_piece_longer_than_the_notice_is_given_back_and_taken_at_once(cluster: Cluster) -> None:
    """The lease, which outlasts the test, is released; the piece, which does too, is begun again."""
    cluster.lease = LONG
    for _ in range(2):
        cluster.worker(*DRAINING, "--notice", "1")
    cluster.wait(lambda: [d.status for d in cluster.devices()] == ["idle"] * 2)
    begin(cluster, slow=LONG)
    at_piece(cluster, 1)
    busy = next(device.name for device in cluster.devices() if device.task)
    pid = worker_of(cluster, busy)
    first = next(worker for worker in cluster.workers if worker.pid == pid)
    first.send_signal(signal.SIGTERM)
    assert ended(first) == 0
    at_piece(cluster, 2)
    assert parts(cluster) == []
    assert set(pieces_begun(cluster).values()) == {2}, "the piece was begun again"


def test_a_second_signal_stops_at_once(cluster: Cluster) -> None:
    worker = cluster.worker(*DRAINING, "--notice", "3600")
    begin(cluster, slow=LONG)
    at_piece(cluster, 1)
    worker.send_signal(signal.SIGUSR1)
    cluster.wait(lambda: "within 1 h 00 min; again" in cluster.logs())
    worker.send_signal(signal.SIGTERM)
    assert ended(worker) == 0
    assert parts(cluster) == []


def test_a_worker_ends_when_it_is_idle_and_not_before(cluster: Cluster) -> None:
    """A task that takes longer than the limit does not count as idleness."""
    begin(cluster, slow=1)
    worker = cluster.worker("--idle-exit", "6", "--signal-exit")
    assert ended(worker) == 0
    assert toy_runs.state(cluster.home).status == "completed", cluster.logs()
    assert cluster.devices() == []


def test_a_worker_drains_after_its_hours(cluster: Cluster) -> None:
    begin(cluster, slow=4)
    worker = cluster.worker("--max-hours", str(40 / 3600))
    assert ended(worker) == 0
    assert toy_runs.state(cluster.home).ended is False
    assert len(parts(cluster)) == (pieces_begun(cluster).total() > 0), cluster.logs()
