"""What happens to a log when the disk, the file or the server below it gives way, and afterwards.

Each of these is an error that says why; what was acknowledged stays; the same store goes on when the
cause is gone.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from agent_forge.events import EventStore, New, StoreUnavailableError
from agent_forge.events.databases.postgres import open_store as open_postgres
from agent_forge.events.databases.sqlite import open_store
from testing.crowd import Crowd
from testing.services.servers import Postgres, open_folder
from testing.services.servers import _runs as runs
from testing.stores.contract import ROOT, Noted, assert_chained, keys, new


class Disk:
    """A small file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, free: int) -> None:
        """Leave so many bytes."""
        self.clear()
        left = os.statvfs(self.folder)
        (self.folder / "filler").write_bytes(b"x" * max(0, left.f_bavail * left.f_frsize - free))

    def clear(self) -> None:
        (self.folder / "filler").unlink(missing_ok=True)

    def mount(self, options: str) -> None:
        subprocess.run(["mount", "-o", options, self.folder], check=True, capture_output=True)


def small_disk(folder: Path, size: str) -> Iterator[Disk]:
    """A tmpfs. Skips where none may be mounted; the limits below need no rights."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if shutil.which("mount") is None:
        pytest.skip("no disk of our own to fill: mount is not installed")
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no disk of our own to fill: {mounted.stderr.strip()}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    yield from small_disk(tmp_path / "disk", "2m")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with open_folder() as folder:
        server = Postgres(folder / "data")
        yield server
        server.stop()


def note(number: int, size: int) -> New:
    """An event of about so many bytes, which no server compresses."""
    return New(Noted(value=random.Random(number).randbytes(size // 2).hex()), str(number))


def append_until_refused(store: EventStore, size: int, least: int = 0) -> tuple[int, str]:
    """How many appends returned, and the message of the first that did not."""
    for number in range(least, 10_000):
        try:
            store.append("s", number, [note(number, size)])
        except StoreUnavailableError as error:
            return number, str(error)
    raise AssertionError("the disk never was full")


# A full disk


def test_a_disk_that_fills_up_stops_the_appends_and_takes_none_of_them(disk: Disk) -> None:
    """The run goes on with the very store when somebody has made room."""
    store = open_store(disk.folder / "log.db")
    disk.fill(free=400_000)
    done, why = append_until_refused(store, 20_000)
    assert 5 < done < 20
    assert "full" in why
    assert keys(store.read("s")) == [str(n) for n in range(done)]
    with store.database.reading() as connection:
        assert store.database.damage(connection) == []
    disk.clear()
    assert store.append("s", done, [note(done, 20_000)]).fresh
    assert keys(store.read("s")) == [str(n) for n in range(done + 1)]
    assert_chained(store.read("s"))
    store.close()


def test_wherever_the_disk_ends_an_append_is_whole_or_not_there(disk: Disk) -> None:
    """No room for the journal, for half of it, for some pages of the log: each is another place."""
    store = open_store(disk.folder / "log.db")
    store.append("s", 0, [new("first")])
    refused = 0
    for free in range(0, 120_000, 4096):
        before = keys(store.read("s"))
        batch = [New(Noted(value="x" * 9_000), f"{free}/{i}") for i in range(5)]
        disk.fill(free)
        try:
            store.append("s", len(before), batch)
        except StoreUnavailableError:
            refused += 1
            assert keys(store.read("s")) == before
        disk.clear()
        store.append("s", len(before), batch)
        assert keys(store.read("s")) == [*before, *(one.key for one in batch)]
    assert 5 < refused < 30
    assert_chained(store.read("s"))
    store.close()


_LIMITED = """
import resource, signal, sys
from pathlib import Path
from agent_forge.events import StoreUnavailableError
from agent_forge.events.databases.sqlite import open_store
from testing.crowd import Crowd
from testing.stores.contract import keys
from tests.acceptance.events.test_log_failures import append_until_refused, note
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = open_store(Path(sys.argv[1]))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
done, why = append_until_refused(store, 20_000)
assert keys(store.read("s")) == [str(n) for n in range(done)]
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert store.append("s", done, [note(done, 20_000)]).fresh
print(done, why)
"""


def test_a_file_that_may_not_grow_stops_the_appends_and_takes_none_of_them(tmp_path: Path) -> None:
    """A quota: another error of the system than a full disk, and needs no rights to try."""
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path / "log.db")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    number, why = done.stdout.split(maxsplit=1)
    assert 5 < int(number) < 15
    assert "is not available" in why
    store = open_store(tmp_path / "log.db")
    assert keys(store.read("s")) == [str(n) for n in range(int(number) + 1)]
    assert_chained(store.read("s"))
    store.close()


@pytest.fixture
def url(server: Postgres) -> str:
    return server.new_database()


def ask(url: str, *statements: str) -> str:
    """Statements of an administrator, each on its own; the last one's answer."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        for statement in statements:
            cursor = connection.execute(statement)  # pyright: ignore[reportArgumentType]
        return str((cursor.fetchone() or [""])[0]) if cursor.description else ""


@pytest.fixture
def tablespace(url: str) -> Iterator[Disk]:
    """A small disk that the table of the log is on."""
    data = Path(ask(url, "SHOW data_directory"))
    for disk in small_disk(data.parent / f"{data.name}-small", "8m"):
        place = disk.folder / "space"
        place.mkdir()
        os.chown(place, data.stat().st_uid, data.stat().st_gid)
        open_postgres(url).close()
        ask(url, f"CREATE TABLESPACE small LOCATION '{place}'")
        ask(url, "ALTER TABLE events SET TABLESPACE small")
        yield disk
        disk.clear()
        ask(url, "ALTER TABLE events SET TABLESPACE pg_default", "DROP TABLESPACE small")


def test_a_server_whose_disk_fills_up_refuses_and_goes_on(url: str, tablespace: Disk) -> None:
    """As with a file: nothing of the append that failed, and then all of it."""
    store = open_postgres(url)
    tablespace.fill(free=500_000)
    done, why = append_until_refused(store, 20_000)
    assert 5 < done < 100
    assert "No space left" in why
    assert keys(store.read("s")) == [str(n) for n in range(done)]
    tablespace.clear()
    assert store.append("s", done, [note(done, 20_000)]).fresh
    assert keys(store.read("s")) == [str(n) for n in range(done + 1)]
    assert_chained(store.read("s"))
    store.close()


# Read-only


def refused(store: EventStore, version: int) -> str:
    """The message of an append that is not taken."""
    with pytest.raises(StoreUnavailableError) as caught:
        store.append("s", version, [new(str(version))])
    return str(caught.value)


@pytest.fixture
def read_only(disk: Disk) -> EventStore:
    """A store that was opened on a read-only disk, and refused an append."""
    store = open_store(disk.folder / "log.db")
    store.append("s", 0, [new("a")])
    store.close()
    disk.mount("remount,ro")
    store = open_store(disk.folder / "log.db")
    assert keys(store.read("s")) == ["a"], "what is there can be read"
    assert "readonly" in refused(store, 1)
    return store


def test_a_log_on_a_read_only_disk_can_be_read_and_goes_on_elsewhere(
    disk: Disk, read_only: EventStore
) -> None:
    """A disk with errors is remounted so by the kernel."""
    disk.mount("remount,rw")
    store = open_store(disk.folder / "log.db")
    store.append("s", 1, [new("b")])
    assert keys(read_only.read("s")) == ["a", "b"]
    assert_chained(store.read("s"))
    store.close()
    read_only.close()


def test_the_same_store_goes_on_when_the_disk_is_writable_again(
    disk: Disk, read_only: EventStore
) -> None:
    """Nobody should have to start a worker again."""
    disk.mount("remount,rw")
    try:
        read_only.append("s", 1, [new("b")])
    finally:
        read_only.close()


def test_a_server_that_is_read_only_refuses_and_goes_on(url: str) -> None:
    """As a standby after a failover is."""
    store = open_postgres(url)
    store.append("s", 0, [new("a")])
    store.close()
    database = url.partition("?")[0].rpartition("/")[2]
    ask(url, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    assert "read-only transaction" in refused(store, 1)
    assert keys(store.read("s")) == ["a"]
    store.close()
    ask(url, f"ALTER DATABASE {database} RESET default_transaction_read_only")
    store.append("s", 1, [new("b")])
    assert_chained(store.read("s"))
    store.close()


# A file that was cut


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A log of forty pages and more."""
    path = tmp_path_factory.mktemp("whole") / "log.db"
    store = open_store(path)
    for number in range(3):
        store.append("s", number, [note(number, 50_000)])
    store.append("s", 3, [new("last")])
    store.close()
    return path.read_bytes()


@pytest.mark.parametrize("length", [*(100, 512, 1000, 4096, 8192, 20_480, 100_000), -8192, -4096, -1])
def test_a_log_that_was_cut_is_refused_and_nothing_is_written_behind_the_cut(
    tmp_path: Path, whole: bytes, length: int
) -> None:
    """By a copy that broke off: what is appended to half a history cannot be repaired."""
    path = tmp_path / "log.db"
    path.write_bytes(whole)
    store = open_store(path)
    assert store.version("s") == 4
    path.write_bytes(whole[:length])
    with pytest.raises(StoreUnavailableError, match=r"malformed|not a database"):
        store.append("s", 4, [new("behind")])
    store.close()
    with pytest.raises(StoreUnavailableError, match=r"malformed|not a database"):
        open_store(path)
    assert path.read_bytes() == whole[:length]
    path.write_bytes(whole)  # from the backup
    store.append("s", 4, [new("behind")])
    assert_chained(store.read("s"))
    store.close()


def test_an_open_log_that_was_emptied_is_refused(tmp_path: Path, whole: bytes) -> None:
    """An empty file is what a new log begins as; whoever has it open knows better."""
    path = tmp_path / "log.db"
    path.write_bytes(whole)
    store = open_store(path)
    assert store.version("s") == 4
    path.write_bytes(b"")
    with pytest.raises(StoreUnavailableError):
        store.append("s", 4, [new("behind")])
    with pytest.raises(StoreUnavailableError):
        store.read("s")
    store.close()
    assert path.read_bytes() == b""


# A server that goes away


@pytest.mark.smoke
@pytest.mark.slow
def test_a_server_killed_amid_concurrent_appends_has_all_that_it_acknowledged(tmp_path: Path) -> None:
    """And a follower by position, which reads on through it, misses nothing and sees nothing twice."""
    server = Postgres(tmp_path / "postgres")
    url = server.new_database()
    open_postgres(url).close()
    crowd = Crowd(url, writers=3)
    for appends in (1, 7, 20):
        crowd.wait(appends)
        server.kill()
        server.start()
    crowd.wait(appends=10)
    assert crowd.judge() == (0, [])
    assert len(crowd.followed) == 2 * sum(len(one) // 2 for one in crowd.acknowledged)
    server.stop()


@pytest.mark.slow
def test_a_server_that_was_stopped_is_an_error_that_says_so_and_then_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads, appends and opening; the store that was there before goes on."""
    monkeypatch.setattr("agent_forge.events.store.RECONNECTS", 1)
    server = Postgres(tmp_path / "postgres")
    url = server.new_database()
    store = open_postgres(url)
    store.append("s", 0, [new("a")])
    pid = int((Path(ask(url, "SHOW data_directory")) / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGINT)  # a fast shutdown: clients are sent away
    while runs(pid):
        time.sleep(0.01)
    for use in (
        lambda: store.append("s", 1, [new("b")]),
        lambda: store.read("s"),
        lambda: open_postgres(url),
    ):
        with pytest.raises(StoreUnavailableError, match="connection") as caught:
            use()
        assert "SELECT" not in str(caught.value)
    server.start()
    assert store.append("s", 1, [new("b")]).fresh
    assert keys(store.read("s")) == ["a", "b"]
    assert_chained(store.read("s"))
    store.close()
    server.stop()
