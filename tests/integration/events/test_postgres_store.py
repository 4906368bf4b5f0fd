"""The contract on a real PostgreSQL, and what is particular to it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy.exc import DatabaseError, ProgrammingError

from agent_forge.events import EventStore, StoreUnavailableError
from agent_forge.events.databases.postgres import Postgres as Database
from agent_forge.events.databases.postgres import open_store
from testing.services.servers import Postgres
from testing.stores.contract import ROOT, StoreContract, assert_chained, keys, new
from testing.waiting import PATIENCE

WRITERS = 8
EVENTS = 60

#: Appends as fast as it can, several rows a commit so that commits overlap.
_WRITER = """
import sys
from agent_forge.events import Event, New
from agent_forge.events.databases.postgres import Postgres, open_store
class Counted(Event):
    type = "counted"
    n: int
url, name, events, locked = sys.argv[1:]
if locked == "no":
    Postgres.begin_append = lambda self, cursor: None
store = open_store(url)
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(events)):
    store.append(name, n, [New(Counted(n=n), f"{name}/{n}")])
"""


@pytest.fixture
def store(postgres: Postgres) -> Iterator[EventStore]:
    store = open_store(postgres.new_database())
    store.append("s", 0, [new("a"), new("b")])
    yield store
    store.close()


class TestPostgresStore(StoreContract):
    opener = (
        "from agent_forge.events.databases.postgres import open_store\n"
        "def open_log(place):\n"
        "    return open_store(place)\n"
    )

    @pytest.fixture(scope="class")
    @classmethod
    def new_place(cls, postgres: Postgres) -> Callable[[], str]:
        return postgres.new_database


def followed(url: str, locked: bool) -> tuple[int, int]:
    """(rows in the log, rows that a follower by position has seen) under concurrent writers."""
    store = open_store(url)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, url, f"w{n}", str(EVENTS), "yes" if locked else "no"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdout
        writer.stdout.readline()
    seen: list[int] = []
    over = threading.Event()

    def follow() -> None:
        seen.extend(row.position for row in store.tail(poll=0.001, stop=over.is_set))

    follower = threading.Thread(target=follow)
    follower.start()
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=PATIENCE)
    over.set()
    follower.join()
    with store.database.reading() as connection:
        total = connection.exec_driver_sql("SELECT count(*) FROM events").scalar()
    store.close()
    return int(total or 0), len(seen)


@pytest.mark.slow
def test_a_follower_by_position_misses_nothing_under_eight_writers(postgres: Postgres) -> None:
    total, seen = followed(postgres.new_database(), locked=True)
    assert total == WRITERS * EVENTS
    assert seen == total


@pytest.mark.slow
def test_without_the_lock_a_follower_misses_events(postgres: Postgres) -> None:
    """The check above can fail: this is what it would find."""
    for _ in range(5):  # luck decides when commits overtake each other
        total, seen = followed(postgres.new_database(), locked=False)
        if seen < total:
            return
    pytest.fail("five rounds without the lock missed nothing: the test above proves nothing")


@pytest.mark.parametrize(
    "statement",
    ["UPDATE events SET data = '{}'", "DELETE FROM events WHERE position = 2", "TRUNCATE events"],
)
def test_the_server_refuses_to_change_what_is_recorded(store: EventStore, statement: str) -> None:
    with pytest.raises(DatabaseError, match="append-only"), store.database.writing() as connection:
        connection.exec_driver_sql(statement)
    assert keys(store.read("s")) == ["a", "b"]


def test_the_right_to_change_is_taken_away_too(postgres: Postgres) -> None:
    """Somebody who drops the triggers and is no superuser still may not."""
    url = postgres.new_database()
    admin = Database(url)
    with admin.writing() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS merger")
        connection.exec_driver_sql("CREATE ROLE merger LOGIN")
        connection.exec_driver_sql("GRANT ALL ON SCHEMA public TO merger")
    admin.close()
    store = open_store(url.replace("postgres:@", "merger:@"))
    store.append("s", 0, [new("a")])
    with store.database.writing() as connection:
        connection.exec_driver_sql("DROP TRIGGER events_no_update ON events")
    with pytest.raises(ProgrammingError, match="permission denied"):
        with store.database.writing() as connection:
            connection.exec_driver_sql("DELETE FROM events")
    store.close()


@pytest.mark.slow
def test_an_append_survives_the_server_being_killed_and_started_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """What was appended is there, and a connection of before the kill is replaced."""
    server = Postgres(tmp_path_factory.mktemp("killed"))
    store = open_store(server.new_database())
    store.append("s", 0, [new("a")])
    server.kill()
    server.start()
    store.append("s", 1, [new("b")])
    assert keys(store.read("s")) == ["a", "b"]
    assert_chained(store.read("s"))
    store.close()
    server.stop()


def test_a_server_that_is_not_there_is_an_error_without_the_password() -> None:
    with pytest.raises(StoreUnavailableError) as caught:
        open_store("postgresql://me:secret@127.0.0.1:1/nothing")
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not re.search("traceback|SELECT", str(caught.value))


def test_a_client_that_stops_in_the_middle_of_an_append_does_not_hold_up_the_others(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SIGSTOP or a suspended machine does it: the server ends its transaction after a while."""
    monkeypatch.setattr("agent_forge.events.databases.postgres.IDLE", "1s")
    url = postgres.new_database()
    stopped, other = open_store(url), open_store(url)

    def stop_within() -> None:
        with stopped.database.appending() as cursor:
            other.append("s", 0, [new("a")])  # it has to wait for the lock
            cursor.execute("SELECT 1")

    with pytest.raises(DatabaseError):
        stop_within()
    assert stopped.append("s", 1, [new("b")]).fresh
    assert keys(other.read("s")) == ["a", "b"]
    stopped.close()
    other.close()
