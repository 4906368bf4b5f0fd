"""Processes end with the one that started them, and a process outlives those that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_forge.runs.errors import ConflictError
from agent_forge.runs.system.linked_processes import tied
from agent_forge.worker.devices import local_servers, postgres_guard
from agent_forge.worker.devices.local_servers import LocalPostgres, PartsFile, Redis, free_port
from agent_forge.worker.queue.leases import owner_of
from testing.models.toy_tensors import Toys
from testing.services.cluster import FORGE, Cluster, children
from testing.waiting import PATIENCE, wait_until
from testing.worlds import runs
from testing.worlds.runs import REPOSITORY


def lives(pid: int) -> bool:
    """Whether a process runs; one that was killed and not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    told = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [pid] + [one for child in told.stdout.split() for one in tree(int(child))]


# ---- a child that dies ---------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    found.close()


@pytest.mark.slow
def test_a_worker_outlives_its_idle_process(cluster: Cluster, toys: Toys) -> None:
    """As the out-of-memory killer may choose it. It was no death at a task, so none is counted."""
    worker = cluster.worker()
    cluster.wait(lambda: [d for d in cluster.devices() if d.status == "idle"])
    (idle,) = children(worker)
    os.kill(idle, signal.SIGKILL)
    runs.submit(cluster.home, toys, generations=0)
    state = cluster.finish()
    assert state.status == "completed"
    assert worker.poll() is None
    assert "task_died" not in {row.type for row in cluster.events()}


@pytest.mark.slow
def test_output_without_a_reader_ends_a_command_quietly() -> None:
    """`forge … | head`: no traceback, and the exit code that SIGPIPE gives."""
    for words in (["settings", "--json"], ["settings"]):
        process = subprocess.Popen(
            [*FORGE, *words], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout
        process.stdout.close()
        _, told = process.communicate(timeout=PATIENCE)
        assert (process.returncode, told) == (141, b""), words


def test_a_connection_that_breaks_is_no_reader_that_went_away() -> None:
    """It is an error that is said: ending quietly, with nothing done, would look like success."""
    code = (
        "import agent_forge.cli.main, agent_forge.cli.runs.start, click\n"
        "@click.command()\n"
        "def settings_command(): raise BrokenPipeError(32, 'Broken pipe')\n"
        "agent_forge.cli.runs.start.settings_command = settings_command\n"
        "agent_forge.cli.main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "settings"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "the other side has closed a connection" in done.stderr


# ---- a parent that dies --------------------------------------------------------------------

PARENT = """
import subprocess, sys, time
from pathlib import Path
from agent_forge.runs.system.linked_processes import tied
from agent_forge.worker.devices import local_servers as servers
print({start}, flush=True)
time.sleep(3600)
"""


def killed_parent(start: str) -> int:
    """Kill a process that has started another by this expression; the other's process id."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(start=start)], cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    assert parent.stdout
    pid = int(parent.stdout.readline())
    assert lives(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    return pid


def test_a_tied_process_ends_with_its_parent() -> None:
    """However the parent ends; and whatever signals it ignores itself."""
    pid = killed_parent("subprocess.Popen(tied(['sleep', '3600'])).pid")
    wait_until(lambda: not lives(pid), "it ends")


def test_a_tied_process_whose_parent_has_gone_already_does_not_begin(tmp_path: Path) -> None:
    """Between the fork and the question to the kernel the parent may end: nobody would tell."""
    command = tied(["touch", str(tmp_path / "begun")])
    command[command.index(str(os.getpid()))] = "1"
    assert subprocess.run(command).returncode == 1
    assert not (tmp_path / "begun").exists()


def test_redis_ends_with_its_parent(tmp_path: Path) -> None:
    pid = killed_parent(f"servers.Redis(Path({str(tmp_path)!r})).pid")
    wait_until(lambda: not lives(pid), "it ends")


@pytest.mark.slow
def test_postgresql_ends_with_its_parent_and_starts_again(tmp_path: Path) -> None:
    """It is a daemon of its own: a guard stops it. The next one does not count the dead as users."""
    pid = killed_parent(f"servers.LocalPostgres(Path({str(tmp_path / 'postgres')!r})).pid")
    wait_until(lambda: not lives(pid), "it ends")
    server = LocalPostgres(tmp_path / "postgres")
    again = server.pid
    assert lives(again)
    server.stop()
    wait_until(lambda: not lives(again), "it ends")


#: A server that ends when asked to, and notes the process of the next one, given as argument. It waits
#: for the signal itself: a handler would not run if the signal came just before a sleep.
FOLLOWED = """
import pathlib, signal, sys

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
pathlib.Path("ready").touch()
signal.sigwait({signal.SIGINT})
pathlib.Path("postmaster.pid").write_text(sys.argv[1])
"""


def test_a_server_that_starts_behind_the_one_that_is_stopped_is_left_alone(tmp_path: Path) -> None:
    # In the background of a script, programs are started with SIGINT ignored.
    following = subprocess.Popen(
        ["sleep", "3600"], cwd=tmp_path, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    command = [sys.executable, "-S", "-c", FOLLOWED, str(following.pid)]
    server = subprocess.Popen(command, cwd=tmp_path)
    try:
        wait_until((tmp_path / "ready").exists, "it is ready")
        (tmp_path / "postmaster.pid").write_text(f"{server.pid}\n")
        postgres_guard.stop(tmp_path)
        assert server.wait(PATIENCE) == 0
        assert postgres_guard.postmaster(tmp_path) == following.pid  # it lives
        postgres_guard.stop(tmp_path)
        assert following.wait(PATIENCE) == -signal.SIGINT
    finally:
        for process in (server, following):
            process.kill()
            process.wait()


# ---- forge up ------------------------------------------------------------------------------


def start_up(home: Path, log: Path) -> subprocess.Popen[bytes]:
    """`forge up` with everything, at work."""
    env = {**os.environ, "FORGE_HOME": str(home), "OMP_WAIT_POLICY": "PASSIVE"}
    for name in ("FORGE_DATABASE_URL", "FORGE_BROKER_URL"):
        env.pop(name, None)
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*FORGE, "up", "--port", str(free_port())],
            cwd=REPOSITORY,
            env=env,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    wait_until(lambda: process.poll() is not None or len(tree(process.pid)) >= 5, "everything runs")
    assert process.poll() is None, log.read_text()
    return process


@pytest.mark.slow
def test_everything_ends_with_a_killed_forge_up_and_the_next_one_starts(tmp_path: Path) -> None:
    """Server, worker, its device's process and Redis: the next one would start beside them."""
    log = tmp_path / "log"
    first = start_up(tmp_path / "home", log)
    below = tree(first.pid)
    first.kill()
    first.wait()
    wait_until(lambda: not any(map(lives, below)), lambda: f"{[*filter(lives, below)]} end")
    second = start_up(tmp_path / "home", log)
    below = tree(second.pid)
    second.send_signal(signal.SIGINT)
    assert second.wait(PATIENCE) == 0
    wait_until(lambda: not any(map(lives, below)), lambda: f"{[*filter(lives, below)]} end")
    assert not (tmp_path / "home" / "up.json").exists()


def test_what_an_earlier_forge_up_left_is_named_with_the_command_that_ends_it(tmp_path: Path) -> None:
    """Where the kernel does not end it, the next one must not start beside it."""
    left = subprocess.Popen(["sleep", "3600"])
    PartsFile(tmp_path).note("worker", left.pid)
    try:
        with pytest.raises(ConflictError, match=rf"worker \(process {left.pid}\).*kill {left.pid}"):
            PartsFile(tmp_path).refuse_left(0.2)
    finally:
        left.kill()
        left.wait()
    PartsFile(tmp_path).refuse_left(0.2)
    assert not (tmp_path / "up.json").exists()


def test_a_process_id_that_is_another_process_now_is_nothing_left(tmp_path: Path) -> None:
    """After a restart of the machine the noted ids are those of strangers."""
    stranger = owner_of(os.getpid(), "worker").replace(f"/{os.getpid()}/", f"/{os.getpid()}/1")
    (tmp_path / "up.json").write_text(json.dumps({"worker": stranger}))
    PartsFile(tmp_path).refuse_left(0.2)


def test_redis_is_noted_by_the_process_that_it_is(tmp_path: Path) -> None:
    """The launcher becomes the server: one process, one id."""
    server = Redis(tmp_path)
    try:
        words = Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0")
        assert b"-server" in words[0]
        assert server.running()
    finally:
        server.stop()


def test_postgresql_locks_in_a_folder_of_the_user_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own choice, /tmp/.lockfile, belongs to the first user and keeps others out."""
    own = tmp_path / f"agent-forge-{os.getuid()}"
    for _ in range(2):
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        local_servers._make_runtime_folder()
        assert os.environ["XDG_RUNTIME_DIR"] == str(own)
        assert (own / "python_PostgresServer").is_dir()
        assert own.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("laid_out", ["link", "dangling link", "file"])
def test_a_runtime_folder_that_another_user_laid_out_is_not_taken(
    laid_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name can be guessed by every user of the machine."""
    theirs, own = tmp_path / "theirs", tmp_path / f"agent-forge-{os.getuid()}"
    if laid_out == "link":
        theirs.mkdir()
    if laid_out == "file":
        own.touch()
    else:
        own.symlink_to(theirs)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    local_servers._make_runtime_folder()
    assert not theirs.exists() or not list(theirs.iterdir())
    assert Path(os.environ["XDG_RUNTIME_DIR"]).name.startswith("tmp")
