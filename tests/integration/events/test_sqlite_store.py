"""The contract on SQLite, and what is particular to it."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError

from agent_forge.events import ConcurrencyError, EventStore, New, StoreUnavailableError
from agent_forge.events.databases.sqlite import (
    BUSY_TIMEOUT_MS,
    WAL_SAFE,
    Sqlite,
    journal_mode,
    open_store,
)
from testing.stores.contract import Noted, StoreContract, assert_chained, keys, new
from testing.waiting import PATIENCE

#: Two megabytes are SQLite's page cache: twice that must reach the disk before the commit.
_BIG = """
class Noted(Event):
    type = "noted"
    value: str

store.append("s", 1, [New(Noted(value="x" * 4_000_000), "big"), New(Counted(n=1), "small")])
"""

#: Takes the lock that writers take, or fails at once.
_LOCK = """
import sqlite3, sys
sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
"""


class TestSqliteStore(StoreContract):
    opener = (
        "from pathlib import Path\n"
        "from agent_forge.events.databases.sqlite import open_store\n"
        "def open_log(place):\n"
        "    return open_store(Path(place))\n"
    )

    @pytest.fixture(scope="class")
    @classmethod
    def new_place(cls, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
        folder = tmp_path_factory.mktemp("logs")
        numbers = itertools.count()
        return lambda: str(folder / f"log-{next(numbers)}.db")

    def test_a_process_killed_with_pages_on_disk_leaves_a_log_that_rolls_back(self, place: str) -> None:
        """An append larger than the page cache reaches the file early; the journal must undo it."""
        store = self.open(place)
        store.append("s", 0, [new("a")])
        store.close()
        small = Path(place).stat().st_size
        child = self.child(_BIG, place, fail="kill:append-inserted:1")
        _, errors = child.communicate("go\n", timeout=PATIENCE)
        assert child.returncode == -signal.SIGKILL, errors
        written = sum(
            file.stat().st_size
            for file in Path(place).parent.iterdir()
            if file.name.startswith(Path(place).name)
        )
        assert written > small + 1_000_000, "the test must kill it with pages on disk"
        again = self.open(place)
        rows = again.read_all()
        with again.database.engine.connect() as connection:
            check = connection.exec_driver_sql("PRAGMA integrity_check").scalar()
        again.append("s", 1, [new("b")])
        assert_chained(again.read("s"))
        again.close()
        assert keys(rows) == ["a"]
        assert check == "ok"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where there is no log yet."""
    return tmp_path / "log.db"


@pytest.fixture
def store(path: Path) -> Iterator[EventStore]:
    """A log with the rows a and b in the stream s."""
    store = open_store(path)
    store.append("s", 0, [new("a"), new("b")])
    yield store
    store.close()


@pytest.mark.parametrize(
    ("version", "mode"),
    [
        ((3, 7, 0), "truncate"),
        ((3, 40, 1), "truncate"),
        ((3, 51, 2), "truncate"),
        ((3, 51, 3), "wal"),
        ((3, 52, 0), "wal"),
        ((4, 0, 0), "wal"),
    ],
)
def test_wal_is_used_only_where_it_is_safe(version: tuple[int, ...], mode: str) -> None:
    """Before 3.51.3 two checkpoints at once can damage the file."""
    assert journal_mode(version) == mode


def test_the_journal_mode_follows_the_library_in_use(store: EventStore) -> None:
    """The choice must reach the file, not only be made."""
    wanted = "wal" if sqlite3.sqlite_version_info >= WAL_SAFE else "truncate"
    with store.database.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == wanted


@pytest.mark.parametrize(
    ("pragma", "value"), [("synchronous", 2), ("mmap_size", 0), ("busy_timeout", BUSY_TIMEOUT_MS)]
)
def test_every_connection_has_the_pragmas(store: EventStore, pragma: str, value: int) -> None:
    """They are per connection, so the second one of the pool must have them as well."""
    with store.database.engine.connect() as one, store.database.engine.connect() as two:
        for connection in (one, two):
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value


def test_a_writer_takes_its_lock_at_begin_and_a_reader_does_not(path: Path) -> None:
    """Taken later, two writers that have both read fail instead of queueing."""
    open_store(path).close()
    database = Sqlite(path)
    other = sqlite3.connect(path, timeout=0, isolation_level=None)
    with database.writing():
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
    with database.reading() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM events")
        other.execute("BEGIN IMMEDIATE")
    other.close()
    database.close()


def others_may_write(path: Path) -> bool:
    """Return True if another process gets the lock that writers take."""
    done = subprocess.run([sys.executable, "-c", _LOCK, str(path)], check=False)
    return done.returncode == 0


def test_an_append_keeps_every_other_process_out_until_its_end(path: Path, store: EventStore) -> None:
    """Closing any descriptor of the file drops the process's locks; two writers damage the file."""
    with store.database.appending():
        assert not others_may_write(path)
    assert others_may_write(path)


def test_a_log_that_is_opened_again_leaves_the_locks_of_its_process(
    path: Path, store: EventStore
) -> None:
    """A worker's threads open the log one after the other while others of them append."""
    with store.database.writing():
        open_store(path).close()
        assert not others_may_write(path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET data = '{}' WHERE position = 1",
        "UPDATE events SET hash = hash",
        "DELETE FROM events WHERE position = 2",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events SELECT position, stream, version, event_id, type, schema,"
        " '{}', key, actor, causation, correlation, recorded_at, code_version, prev_hash, hash"
        " FROM events WHERE position = 1",
    ],
    ids=["update", "update all", "delete", "delete all", "replace"],
)
def test_the_database_refuses_to_change_what_is_recorded(store: EventStore, statement: str) -> None:
    """A slip in somebody's SQL must not rewrite history."""
    before = store.read_all()
    with (
        pytest.raises(IntegrityError, match="append-only"),
        store.database.engine.begin() as connection,
    ):
        connection.exec_driver_sql(statement)
    assert store.read_all() == before


def test_a_plain_sqlite_client_is_refused_too(store: EventStore, path: Path) -> None:
    """The triggers are in the file, so they hold for the command-line tool as well."""
    client = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        client.execute("DELETE FROM events")
    client.close()
    assert len(store.read_all()) == 2


def test_a_position_is_never_used_twice(store: EventStore, path: Path) -> None:
    """A reader that remembers its position would skip a row put at an old one."""
    client = sqlite3.connect(path)
    client.execute("DROP TRIGGER events_no_delete")
    client.execute("DELETE FROM events WHERE position = 2")
    client.commit()
    client.close()
    (row,) = store.append("s", None, [new("c")]).rows
    assert row.position == 3


def test_opening_a_log_puts_back_a_trigger_that_was_dropped(store: EventStore, path: Path) -> None:
    """A restored or repaired file must be append-only again."""
    client = sqlite3.connect(path)
    client.execute("DROP TRIGGER events_no_delete")
    client.close()
    open_store(path).close()
    with (
        pytest.raises(IntegrityError, match="append-only"),
        store.database.engine.begin() as connection,
    ):
        connection.exec_driver_sql("DELETE FROM events")


@pytest.mark.parametrize("name", ["a b", "ünï", "a#b", "a?b", "a%41b"])
def test_the_log_is_in_the_file_that_was_named(tmp_path: Path, name: str) -> None:
    """A path is not a URL: read as one, the log lands elsewhere or cannot be opened."""
    folder = tmp_path / name
    folder.mkdir()
    open_store(folder / "log.db").close()
    names = sorted(file.name for file in folder.iterdir())
    assert names[0] == "log.db"
    assert all(name.startswith("log.db-") for name in names[1:])
    assert list(tmp_path.iterdir()) == [folder]


def _missing(path: Path) -> Path:
    return path / "nowhere" / "log.db"


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _in_a_file(path: Path) -> Path:
    path.write_text("a file, not a folder")
    return path / "log.db"


def _unwritable(path: Path) -> Path:
    if os.getuid() == 0:
        return Path("/proc/log.db")  # root may write anywhere but here
    path.mkdir(mode=0o500)
    return path / "log.db"


def _not_a_log(path: Path) -> Path:
    path.write_bytes(b"this is not a database" * 100)
    return path


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_missing, "unable to open database file"),
        (_folder, "unable to open database file"),
        (_in_a_file, "unable to open database file"),
        (_unwritable, "unable to open database file"),
        (_not_a_log, "file is not a database"),
    ],
)
def test_a_log_that_cannot_be_opened_says_where_and_why(
    path: Path, make: Callable[[Path], Path], why: str
) -> None:
    """Whoever starts a run must be told what to repair, without a traceback of SQLAlchemy."""
    place = make(path)
    with pytest.raises(StoreUnavailableError) as caught:
        open_store(place)
    assert caught.value.where == str(place)
    assert str(place) in str(caught.value)
    assert why in str(caught.value)
    assert "SELECT" not in str(caught.value)


def _damage(path: Path) -> None:
    """Overwrite all pages but the first, which holds the schema."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.append("s", 2, [new("c")]),
        lambda store: store.version("s"),
        lambda store: store.read("s"),
        lambda store: store.read_all(),
        lambda store: store.streams(),
        lambda store: next(store.tail()),
    ],
    ids=["append", "version", "read", "read_all", "streams", "tail"],
)
def test_a_damaged_log_is_reported_by_every_operation(
    store: EventStore, path: Path, use: Callable[[EventStore], object]
) -> None:
    """Callers know the errors of the log, not those of the library below it."""
    store.close()
    _damage(path)
    with pytest.raises(StoreUnavailableError, match="malformed"):
        use(store)


@pytest.mark.parametrize(
    "use",
    [lambda store: store.append("s", 2, [new("c")]), lambda store: store.read("s")],
    ids=["append", "read"],
)
def test_a_log_whose_folder_is_gone_is_reported(
    tmp_path: Path, use: Callable[[EventStore], object]
) -> None:
    """A disk can be unmounted under a running worker."""
    folder = tmp_path / "disk"
    folder.mkdir()
    store = open_store(folder / "log.db")
    store.close()
    folder.rename(tmp_path / "unmounted")
    with pytest.raises(StoreUnavailableError, match="unable to open"):
        use(store)


def test_a_full_disk_is_reported_and_nothing_recorded_is_lost(store: EventStore) -> None:
    """The run stops with a reason, and goes on when there is space again."""
    full = True

    def limit(connection: sqlite3.Connection, _record: object) -> None:
        if full:
            connection.execute("PRAGMA max_page_count=1")  # means: no more than there are

    store.close()
    event.listen(store.database.engine, "connect", limit)
    note = New(Noted(value="x" * 100_000), "big")
    with pytest.raises(StoreUnavailableError, match="full"):
        store.append("s", 2, [new("c"), note])
    assert keys(store.read_all()) == ["a", "b"]
    full = False
    store.close()
    assert store.append("s", 2, [new("c"), note]).fresh
    assert_chained(store.read("s"))


def test_a_log_that_stays_locked_is_given_up_after_some_attempts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for ever for a process that hangs would look like a hang of our own."""
    monkeypatch.setattr("agent_forge.events.databases.sqlite.BUSY_TIMEOUT_MS", 1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnavailableError, match="locked"):
        open_store(path, attempts=2)
    other.execute("ROLLBACK")
    other.close()
    open_store(path, attempts=1).close()


def test_a_log_that_was_replaced_under_an_open_store_gets_no_gap(path: Path) -> None:
    """A store remembers where it appended last; a backup put in place does not have that row."""
    store = open_store(path)
    store.append("s", 0, [new("a")])
    backup = path.read_bytes()
    store.append("s", 1, [new("b")])
    store.append("s", None, [new("c")])
    store.close()
    path.write_bytes(backup)
    store.append("s", None, [new("d"), new("e")])
    assert keys(store.read("s")) == ["a", "d", "e"]
    assert_chained(store.read("s"))
    store.close()


def test_stores_that_append_in_turns_remember_nothing_wrong(path: Path) -> None:
    """Each knows only its own last row; the other's is behind it already."""
    one, other = open_store(path), open_store(path)
    for n in range(6):
        (one if n % 2 else other).append("s", n, [new(str(n))])
    assert one.append("s", None, [new("0")]).fresh is False
    with pytest.raises(ConcurrencyError):
        other.append("s", 5, [new("x")])
    assert keys(other.read("s")) == [str(n) for n in range(6)]
    assert_chained(other.read("s"))
    one.close()
    other.close()
