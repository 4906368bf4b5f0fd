"""Writers of one SQLite log: all get their turn, and none waits for ever for a process that hangs."""

from __future__ import annotations

import asyncio
import fcntl
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from agent_forge.events import EventStore, StoreUnavailableError
from agent_forge.events.databases.sqlite import open_store
from testing.stores.contract import assert_chained, new
from testing.waiting import PATIENCE

WRITERS, APPENDS = 8, 200

#: Appends to a stream of its own as fast as it can, once all others can do the same.
_WRITER = """
import sys
from pathlib import Path
from agent_forge.events import Event, New
from agent_forge.events.databases.sqlite import open_store

class Counted(Event):
    type = "counted"
    n: int

store, stream, count = open_store(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for n in range(count):
    store.append(stream, n, [New(Counted(n=n), f"{stream}/{n}")])
store.close()
"""

#: Takes the lock that writers take, and keeps it until its input ends.
_HOLDER = """
import sys
from pathlib import Path
from agent_forge.events.databases.sqlite import open_store
store = open_store(Path(sys.argv[1]))
with store.database.appending():
    print("ready", flush=True)
    sys.stdin.readline()
store.close()
"""


@pytest.fixture
def path() -> Iterator[Path]:
    """A log in memory if the machine has such a folder: what is measured is waiting, not the disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder) / "log.db"


@pytest.fixture
def store(path: Path) -> Iterator[EventStore]:
    opened = open_store(path)
    yield opened
    opened.close()


@contextmanager
def started(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that prints a line when it is ready; kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    """Wait for the process's line."""
    assert process.stdout
    assert process.stdout.readline() == "ready\n", process.communicate()[1]


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of writers, until it reads a line or ends."""
    with started(_HOLDER, path) as process:
        wait_until_ready(process)
        yield process


def release(process: subprocess.Popen[str]) -> None:
    """Let a process that is ready go on."""
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.mark.slow
def test_processes_that_append_as_fast_as_they_can_all_get_through(
    path: Path, store: EventStore
) -> None:
    """None fails, and none starves: SQLite's own waiting may leave some with nothing until others end.

    A fair share would be `APPENDS` each when the first writer is done. Shares are left to chance,
    and to a busy machine: a fiftieth is asked for.
    """
    with ExitStack() as stack:
        writers = [
            stack.enter_context(started(_WRITER, path, f"w{n}", APPENDS)) for n in range(WRITERS)
        ]
        for step in (wait_until_ready, release):
            for writer in writers:
                step(writer)
        errors = [writer.communicate(timeout=PATIENCE)[1] for writer in writers]
    assert errors == [""] * WRITERS
    streams = [row.stream for row in store.read_all(limit=10**6)]
    assert Counter(streams) == {f"w{n}": APPENDS for n in range(WRITERS)}
    for n in range(WRITERS):
        assert_chained(store.read(f"w{n}"))
    first_end = min(max(i for i, s in enumerate(streams) if s == name) for name in set(streams))
    shares = Counter(streams[: first_end + 1])
    assert min(shares[f"w{n}"] for n in range(WRITERS)) >= APPENDS / 50, shares


def test_a_writer_behind_a_stopped_process_gives_up_after_the_timeout(
    store: EventStore, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait for ever would look like a hang of our own. The store is as good as before after it.

    By a clock that only the writer's own naps move.
    """
    now = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda nap: now.__setitem__(0, now[0] + nap)
    )
    holder.send_signal(signal.SIGSTOP)
    monkeypatch.setattr("agent_forge.events.databases.sqlite.BUSY_TIMEOUT_MS", 300)
    monkeypatch.setattr("agent_forge.events.databases.sqlite.time", clock)
    with pytest.raises(StoreUnavailableError, match="locked"):
        store.append("s", 0, [new("a")])
    waited = now[0]
    with pytest.raises(StoreUnavailableError, match="locked"):
        with store.database.explained(), store.database.writing():
            pytest.fail("two writers at once")
    monkeypatch.undo()
    assert 0.3 <= waited < 0.6, "the timeout that was set, and a nap"
    holder.send_signal(signal.SIGCONT)
    release(holder)
    assert store.append("s", 0, [new("a")]).fresh


def test_the_lock_of_a_killed_process_is_free(store: EventStore, holder: subprocess.Popen[str]) -> None:
    """A writer that waits for the process gets the lock, also if the process is stopped."""
    holder.send_signal(signal.SIGSTOP)
    thread = threading.Thread(target=store.append, args=("s", 0, [new("a")]))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive(), "the lock is held"
    holder.kill()
    thread.join()
    assert store.version("s") == 1


def test_threads_that_wait_for_the_lock_leave_the_event_loop_running(
    store: EventStore, holder: subprocess.Popen[str]
) -> None:
    """The loop itself lets the holder go: if it stood still, the threads would wait in vain."""

    async def append_in_threads() -> None:
        waiting = [
            asyncio.create_task(asyncio.to_thread(store.append, f"t{n}", 0, [new(f"t{n}")]))
            for n in range(4)
        ]
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not any(task.done() for task in waiting)
        release(holder)
        await asyncio.gather(*waiting)

    asyncio.run(append_in_threads())
    assert len(store.read_all()) == 4


def test_lock_files_of_earlier_versions_are_ignored(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers once queued at two files beside the log; a lock on them must not delay anything."""
    with Path(f"{path}-gate").open("w") as gate, Path(f"{path}-room").open("w") as room:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX)
        for name in ("flock", "lockf"):
            monkeypatch.setattr(fcntl, name, lambda *_: pytest.fail("it asks for a lock of a file"))
        store = open_store(path)
        store.append("s", 0, [new("a")])
        assert store.version("s") == 1
        store.close()
