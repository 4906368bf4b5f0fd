"""Leases: one worker at a task, and no task lost with its worker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from agent_forge.events.databases.sqlite import Sqlite
from agent_forge.runs.errors import ConfigError
from agent_forge.worker.queue import leases
from agent_forge.worker.queue.leases import LEASES, Leases, alive, here, myself
from testing.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[3]

#: Claims `t`, says who it is, and ends when its input does.
_CLAIMER = """
import sys
from pathlib import Path
from agent_forge.events.databases.sqlite import Sqlite
from agent_forge.worker.queue import leases
from agent_forge.worker.queue.leases import Leases
leases = Leases(Sqlite(Path(sys.argv[1])))
print(leases.owner, flush=True)
assert leases.claim("t")
print("claimed", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the log that the leases are in."""
    return tmp_path / "log.db"


@pytest.fixture
def database(path: Path) -> Iterator[Sqlite]:
    """A database on that file, with the locking of the log."""
    database = Sqlite(path)
    yield database
    database.close()


def brief(database: Sqlite, owner: str | None = None, lifetime: float = -1.0) -> Leases:
    """Leases that have expired when they are given, or beat all the time."""
    leases = Leases(database, owner)
    leases.lifetime, leases.beat = lifetime, 0.005
    return leases


def another(number: int) -> str:
    """An owner as another thread of this process would be: it lives as long as the tests do."""
    return f"{myself().rpartition('/')[0]}/thread{number}"


def elsewhere(number: int = 1) -> str:
    """An owner on another machine."""
    return f"not-{socket.gethostname()}/{number}/12345/1"


def lease(database: Sqlite, task: str = "t") -> tuple[str, int, float]:
    """Owner, fence and expiry as recorded."""
    with database.reading() as connection:
        row = connection.execute(select(LEASES).where(LEASES.c.task == task)).one()
    return row.owner, row.fence, row.expires


@pytest.fixture
def claimer(path: Path, database: Sqlite) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease on `t`."""
    Leases(database)
    process = subprocess.Popen(
        [sys.executable, "-c", _CLAIMER, str(path)],
        cwd=ROOT,
        env={**os.environ, "FORGE_LEASE_SECONDS": "3600"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert process.stdout.readline() == "claimed\n"
    yield process
    process.kill()
    process.communicate()


def test_a_task_has_one_owner_at_a_time(database: Sqlite) -> None:
    """Work done twice is time lost."""
    mine, theirs = Leases(database), Leases(database, another(1))
    assert mine.claim("t")
    assert not theirs.claim("t")
    assert lease(database)[0] == mine.owner


def test_tasks_are_claimed_one_by_one(database: Sqlite) -> None:
    """The others of a generation stay free for other processes."""
    mine, theirs = Leases(database), Leases(database, another(1))
    assert mine.claim("t")
    assert theirs.claim("u")


def test_an_owner_may_claim_its_task_again(database: Sqlite) -> None:
    """A worker whose task failed tries again without waiting for itself."""
    mine = Leases(database)
    assert mine.claim("t")
    assert mine.claim("t")
    assert not Leases(database, another(1)).claim("t")


def winners(database: Sqlite) -> list[str]:
    """Return the owners, of eight that claim the task `t` at once, whose claim succeeds."""
    claims = [Leases(database, another(n)) for n in range(8)]
    start = threading.Barrier(len(claims))
    owners: list[str] = []

    def claim(leases: Leases) -> None:
        start.wait()
        if leases.claim("t"):
            owners.append(leases.owner)

    threads = [threading.Thread(target=claim, args=(leases,)) for leases in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return owners


def test_many_that_claim_at_once_get_one_winner(database: Sqlite) -> None:
    """Between looking and writing there must be no room for another."""
    assert winners(database) == [lease(database)[0]]


def test_many_that_take_over_at_once_get_one_winner(database: Sqlite) -> None:
    """The same for a lease whose owner is dead: the fence decides."""
    host, pid, _, _ = myself().split("/")
    Leases(database, f"{host}/{pid}/1/1").claim("t")
    assert winners(database) == [lease(database)[0]]
    assert lease(database)[1] == 2


def test_a_released_task_is_free(database: Sqlite) -> None:
    """Nobody waits for a lease to expire after work that went well."""
    mine = Leases(database)
    mine.claim("t")
    mine.release("t")
    assert Leases(database, another(1)).claim("t")


def test_only_the_owner_releases(database: Sqlite) -> None:
    """A worker that was taken for dead must not free the task of its successor."""
    mine, theirs = Leases(database), Leases(database, another(1))
    mine.claim("t")
    theirs.release("t")
    assert not theirs.claim("t")


def test_the_fence_rises_with_every_claim(database: Sqlite) -> None:
    """Of two that believe they hold a task, the one with the higher number does."""
    fences = []
    for owner in (elsewhere(1), elsewhere(2), elsewhere(2), None):
        fence = brief(database, owner).claim("t")
        assert fence == lease(database)[1]
        fences.append(fence)
    assert fences == [1, 2, 3, 4]
    assert [Leases(database).holds("t", fence) for fence in fences] == [False, False, False, True]
    assert not Leases(database).holds("u", 1)


def test_a_refused_claim_leaves_the_lease_as_it_was(database: Sqlite) -> None:
    """Asking must neither extend nor weaken it."""
    Leases(database).claim("t")
    before = lease(database)
    Leases(database, another(1)).claim("t")
    assert lease(database) == before


# Owners that die


def test_a_living_process_without_a_heartbeat_loses_its_lease(
    claimer: subprocess.Popen[str], database: Sqlite
) -> None:
    """It was stopped, or hangs: its task must not wait for it."""
    with database.writing() as connection:
        connection.execute(LEASES.update().values(expires=0.0))
    assert Leases(database).claim("t")


def test_what_is_held_is_listed(claimer: subprocess.Popen[str], database: Sqlite) -> None:
    """Not what was released, has expired or was a dead process's."""
    brief(database).claim("expired")
    mine = Leases(database)
    mine.claim("mine")
    mine.claim("released")
    mine.release("released")
    assert mine.held() == {"mine": mine.owner, "t": lease(database)[0]}
    claimer.kill()
    claimer.wait()
    assert mine.held() == {"mine": mine.owner}


@pytest.mark.parametrize("seconds", ["", "0", "-1", "x", "nan", "inf", "4000"])
def test_a_lifetime_that_makes_no_sense_is_refused(
    database: Sqlite, monkeypatch: pytest.MonkeyPatch, seconds: str
) -> None:
    monkeypatch.setenv("FORGE_LEASE_SECONDS", seconds)
    with pytest.raises(ConfigError, match="FORGE_LEASE_SECONDS"):
        Leases(database)


def test_a_killed_process_loses_its_lease_at_once(
    claimer: subprocess.Popen[str], database: Sqlite
) -> None:
    """A run goes on the moment it is resumed, not a minute later."""
    owner, *_ = lease(database)  # it would last an hour
    assert not Leases(database).claim("t")
    claimer.kill()
    claimer.wait()
    assert alive(owner) is False
    assert Leases(database).claim("t")


def test_a_killed_process_that_nobody_has_waited_for_loses_its_lease_too(
    claimer: subprocess.Popen[str], database: Sqlite
) -> None:
    """A zombie works on nothing, and where pid 1 does not reap it stays one for ever."""
    claimer.kill()
    os.waitid(os.P_PID, claimer.pid, os.WEXITED | os.WNOWAIT)
    assert Leases(database).claim("t")


def test_a_process_killed_as_it_claims_does_not_block_the_task(path: Path, database: Sqlite) -> None:
    """The claim is recorded, the worker is gone: the crash tests pass here as well."""
    end = subprocess.run(
        [sys.executable, "-c", _CLAIMER, str(path)],
        cwd=ROOT,
        env={**os.environ, "FORGE_FAILPOINTS": "kill:task-claimed:1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert end.returncode == -signal.SIGKILL, end.stderr
    owner, fence, _ = lease(database)
    assert [owner] == end.stdout.split()
    assert Leases(database).claim("t")
    assert lease(database)[1] == fence + 1


def test_a_pid_that_was_given_to_another_process_is_another_owner(database: Sqlite) -> None:
    """Pids come round again: the time of the start tells them apart."""
    host, pid, started, thread = myself().split("/")
    before = f"{host}/{pid}/{int(started) - 1}/{thread}"
    assert alive(myself()) is True
    assert alive(before) is False
    Leases(database, before).claim("t")
    assert Leases(database).claim("t")


def test_where_start_times_are_unknown_the_pid_alone_decides() -> None:
    """Outside Linux there is no /proc: then a reused pid keeps a lease, and no living owner dies."""
    host, pid, _, thread = myself().split("/")
    assert alive(f"{host}/{pid}//{thread}") is True


def test_a_process_of_another_user_is_alive() -> None:
    """Pid 1 always lives; not being allowed to signal it does not make it dead."""
    started = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    assert alive(f"{here()}/1/{started}/1") is True


def test_a_process_whose_start_proc_hides_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `hidepid` /proc says nothing of other users' processes: their leases hold."""
    host, pid, started, thread = myself().split("/")
    monkeypatch.setattr(leases, "_started", lambda _: "")
    assert alive(f"{host}/{pid}/{started}/{thread}") is True


# Owners elsewhere


def test_a_lease_from_another_machine_holds_until_it_expires(database: Sqlite) -> None:
    """Its process cannot be asked, so it is given its time."""
    assert alive(elsewhere()) is None
    Leases(database, elsewhere()).claim("t")
    assert not Leases(database).claim("t")


def test_a_lease_from_another_machine_is_taken_over_when_it_has_expired(database: Sqlite) -> None:
    """A machine that went down must not hold a run up for ever."""
    brief(database, elsewhere()).claim("t")
    mine = Leases(database)
    assert mine.claim("t")
    assert lease(database)[0] == mine.owner
    assert not Leases(database, elsewhere()).claim("t")


# Heartbeat


def test_a_heartbeat_extends_the_lease_while_the_work_is_done(database: Sqlite) -> None:
    """A task may take longer than a lease lives."""
    leases = brief(database, lifetime=60)
    leases.claim("t")
    leases.claim("other")
    _, fence, first = lease(database)
    _, _, other = lease(database, "other")
    with leases.heartbeat("t"):
        wait_until(lambda: lease(database)[2] > first, "a first heartbeat")
        second = lease(database)[2]
        wait_until(lambda: lease(database)[2] > second, "a second heartbeat")
    assert lease(database)[:2] == (leases.owner, fence)
    assert lease(database, "other")[2] == other


def test_a_heartbeat_ends_with_the_work_even_when_it_fails(database: Sqlite) -> None:
    """A thread left behind would hold the task of a worker that gave up."""
    leases = brief(database, lifetime=60)
    leases.claim("t")
    with pytest.raises(RuntimeError, match="the work"), leases.heartbeat("t"):
        raise RuntimeError("the work failed")
    assert [thread for thread in threading.enumerate() if "heartbeat" in thread.name] == []


def test_a_heartbeat_does_not_extend_the_lease_of_a_successor(database: Sqlite) -> None:
    """Whoever was taken for dead and wakes up must leave the new owner's lease alone."""
    late, successor = brief(database, elsewhere(1)), Leases(database)
    late.claim("t")
    late.claim("u")
    late.lifetime = 60
    assert successor.claim("t")
    before = lease(database)
    _, _, still_mine = lease(database, "u")
    with late.heartbeat("t"), late.heartbeat("u"):
        # The thread of t beats as often.
        wait_until(lambda: lease(database, "u")[2] > still_mine, "a heartbeat of u")
    assert lease(database) == before


def test_a_table_of_leases_that_was_dropped_is_made_again(database: Sqlite) -> None:
    """Leases are not truth: to lose them all costs some work done twice, and nothing else."""
    Leases(database).claim("t")
    with database.writing() as connection:
        LEASES.drop(connection)
    assert Leases(database, another(1)).claim("t")
