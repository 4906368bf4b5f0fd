"""Speed of the event log against its own database drivers, as ratios from one run.

python -m benchmarks.events.log [append] [postgres] [fair] [follow] [replay]

append     durable appends through EventStore and through plain sqlite3, same file layout and pragmas
postgres   the same on a real PostgreSQL server, through EventStore and through plain psycopg
fair       eight processes append as fast as they can: the least share that one of them gets, with
           this program's retries and, on SQLite, with SQLite's own waiting
follow     memory while following a short log and a long one
replay     rows read, validated and folded a second
"""

from __future__ import annotations

import argparse
import itertools
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg

from agent_forge.events import Envelope, Event, EventStore, New
from agent_forge.events.databases import postgres, sqlite
from agent_forge.events.store import CODE_VERSION
from benchmarks.events import log_reading
from benchmarks.events.log_reading import verdict
from testing.services.servers import Postgres

ROOT = Path(__file__).parents[2]
#: Pairs of contestants, rounds of each in turn, and commits in a round.
PAIRS, ROUNDS, COMMITS = 6, 8, 25
WRITERS = 8
#: How a writer waits for its turn: by this program's retries, or by SQLite's busy handler.
RETRIES, OWN = "retries", "SQLite's own waiting"

COLUMNS = Envelope._fields[1:]

Row = tuple[Any, ...]
#: Function that makes each of some batches durable, in a transaction of its own.
Contestant = Callable[[Sequence[Sequence[Any]]], None]
#: Function that makes a new pair: the driver alone, and `EventStore`.
Pairs = Callable[[], AbstractContextManager[tuple[Contestant, Contestant]]]


class Noted(Event):
    """Event of about 400 bytes of JSON."""

    type = "noted"

    text: str
    numbers: tuple[float, ...]


def note(n: int) -> Noted:
    """Return the n-th event."""
    return Noted(text=f"event {n}, ".ljust(190, "x"), numbers=tuple((n + i) / 7 for i in range(9)))


def compare(title: str, pairs: Pairs, batch: int, goal: float | None) -> None:
    """Let both contestants append in short turns and print the ratio of their speeds.

    Several pairs are timed, each on files, connections and server processes of its own. The reason:
    the core on which the kernel places a process decides over a third of a statement's cost.
    """
    count = itertools.count()
    times: dict[str, list[float]] = {"plain": [], "ours": []}
    for _ in range(PAIRS):
        with pairs() as (plain, ours):
            for turn in range(ROUNDS + 2):
                notes = [[next(count) for _ in range(batch)] for _ in range(COMMITS)]
                rows = [list(map(_row, numbers)) for numbers in notes]
                events = [[New(note(n), f"o/{n}") for n in numbers] for numbers in notes]
                turns = [("plain", plain, rows), ("ours", ours, events)]
                for name, contestant, batches in turns[:: 1 if turn % 2 else -1]:
                    began = time.perf_counter()
                    contestant(batches)
                    if turn > 1:  # the first two turns warm up
                        times[name].append(time.perf_counter() - began)
    ratios = sorted(p / o for p, o in zip(times["plain"], times["ours"], strict=True))
    ratio = statistics.median(ratios)
    speed = {name: COMMITS * batch / statistics.median(t) for name, t in times.items()}
    spread = f"quartiles {ratios[len(ratios) // 4]:.2f} to {ratios[-len(ratios) // 4]:.2f}"
    print(
        f"{title}, {batch} a commit: plain {speed['plain']:,.0f}/s, ours {speed['ours']:,.0f}/s, "
        f"ratio {ratio:.2f} ({spread}){verdict(ratio, goal)}"
    )


def _row(n: int) -> Row:
    """Return a row as the store would make it; only its hash is invented."""
    digest = f"{n:064x}"
    return (
        "plain",
        n + 1,
        f"{n:032x}-xxx",
        "noted",
        1,
        note(n).payload(),
        f"p/{n}",
        "system",
        None,
        None,
        "2026-01-01T00:00:00.000000+00:00",
        CODE_VERSION,
        digest,
        digest,
    )


def through(store: EventStore) -> Contestant:
    """Return a contestant that appends through the store, at the version that it expects."""
    version = 0

    def append(batches: Sequence[Sequence[New]]) -> None:
        nonlocal version
        for batch in batches:
            store.append("ours", version, batch)
            version += len(batch)

    return append


# ---- append --------------------------------------------------------------------------------


def append() -> None:
    """Compare on SQLite, in the journal mode that is used here and in WAL."""
    used = sqlite.journal_mode()
    print(f"SQLite {sqlite3.sqlite_version}, journal mode here: {used}")
    for mode in sorted({used, "wal"}):
        for batch in (1, 10):
            goal = 0.5 if batch == 1 else None
            compare(f"append, SQLite {mode}", partial(sqlite_pair, mode), batch, goal)


@contextmanager
def sqlite_pair(mode: str) -> Iterator[tuple[Contestant, Contestant]]:
    """Make contestants on two files in one folder."""
    with in_mode(mode), tempfile.TemporaryDirectory() as folder:
        mine, theirs = Path(folder) / "ours.db", Path(folder) / "plain.db"
        sqlite.open_store(theirs).close()  # the same table, indexes and triggers
        store = sqlite.open_store(mine)
        with closing(plain_connection(theirs, store)) as connection:
            yield plain_sqlite(connection), through(store)
        store.close()


@contextmanager
def in_mode(mode: str) -> Iterator[None]:
    """Make the store use this journal mode, as if it were the safe one here."""
    with mock.patch.object(sqlite, "journal_mode", return_value=mode):
        yield


def plain_connection(path: Path, store: EventStore) -> sqlite3.Connection:
    """Open a connection of sqlite3 with the pragmas of the store's connections."""
    connection = sqlite3.connect(path, isolation_level=None)
    with store.database.reading() as ours:
        for pragma in ("journal_mode", "synchronous", "mmap_size", "busy_timeout"):
            value = ours.exec_driver_sql(f"PRAGMA {pragma}").scalar()
            connection.execute(f"PRAGMA {pragma}={value}")
    return connection


def plain_sqlite(connection: sqlite3.Connection) -> Contestant:
    """Return a contestant that uses the driver alone."""
    marks = ", ".join("?" for _ in COLUMNS)
    statement = f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({marks})"

    def append(batches: Sequence[Sequence[Row]]) -> None:
        for batch in batches:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(statement, batch)
            connection.execute("COMMIT")

    return append


# ---- postgres ------------------------------------------------------------------------------


@contextmanager
def server() -> Iterator[Postgres]:
    """Start a PostgreSQL server for this benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        running = Postgres(Path(folder))
        try:
            yield running
        finally:
            running.stop()


def append_postgres() -> None:
    """Compare on PostgreSQL: insert and commit against lock, look-up, insert and commit."""
    with server() as running:
        for batch in (1, 10):
            goal = 0.5 if batch == 1 else None
            compare("append, PostgreSQL", partial(postgres_pair, running), batch, goal)


@contextmanager
def postgres_pair(running: Postgres) -> Iterator[tuple[Contestant, Contestant]]:
    """Make contestants on two databases of one server."""
    store = postgres.open_store(running.new_database())
    theirs = running.new_database()
    postgres.open_store(theirs).close()
    connection = psycopg.connect(theirs, connect_timeout=10, application_name="agent-forge")
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    yield plain_psycopg(connection), through(store)
    connection.close()
    store.close()


def plain_psycopg(connection: psycopg.Connection) -> Contestant:
    """Return a contestant that uses the driver alone, without the lock."""
    marks = ", ".join("%s" for _ in COLUMNS)
    statement: Any = f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({marks})"

    def append(batches: Sequence[Sequence[Row]]) -> None:
        cursor = connection.cursor()
        for batch in batches:
            if len(batch) == 1:
                cursor.execute(statement, batch[0])
            else:
                cursor.executemany(statement, batch)
            connection.commit()

    return append


# ---- fair ----------------------------------------------------------------------------------

#: Program of a writer: opens the log at the same time as all others, appends until its time is up,
#: and prints its number of appends, errors and waiting times.
_WRITER = """
import json, sys, time
from pathlib import Path
from benchmarks.events.log import OWN, New, note, postgres, sqlite
kind, place, mode, waiting, name, seconds = sys.argv[1:]
if mode:
    sqlite.journal_mode = lambda *_: mode
if waiting == OWN:
    sqlite._take_write_lock = lambda execute: execute("BEGIN IMMEDIATE")
print("ready", flush=True)
sys.stdin.readline()
errors, waits, n = [], [], 0
store = postgres.open_store(place) if kind == "postgres" else sqlite.open_store(Path(place))
end = time.monotonic() + float(seconds)
while (began := time.monotonic()) < end:
    try:
        store.append(name, n, [New(note(n), f"{name}/{n}")])
        n += 1
    except Exception as error:
        errors.append(repr(error))
    waits.append(time.monotonic() - began)
print(json.dumps({"count": n, "errors": errors, "waits": sorted(waits)}))
"""


def fair(seconds: float = 20) -> None:
    """Measure fairness on SQLite (the mode used here and WAL), and on PostgreSQL for the record."""
    for mode in sorted({sqlite.journal_mode(), "wal"}):
        with tempfile.TemporaryDirectory() as folder:
            for waiting in (RETRIES, OWN):
                title = f"fair, SQLite {mode}, {waiting}"
                crowd(title, "sqlite", f"{folder}/{waiting}.db", mode, waiting, seconds)
    with server() as running:
        crowd("fair, PostgreSQL", "postgres", running.new_database(), "", "", seconds)


def at_once(program: str, words: Sequence[Sequence[str]], seconds: float) -> list[Any]:
    """Run a Python program once for each list of words, begun together; return their JSON lines.

    A program prints a line when it is ready, and waits for one; then it works for `seconds`.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, *own_words],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for own_words in words
    ]
    for process in processes:
        assert process.stdout
        process.stdout.readline()
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    return [json.loads(process.communicate(timeout=seconds + 120)[0]) for process in processes]


def crowd(title: str, kind: str, place: str, mode: str, waiting: str, seconds: float) -> None:
    """Run eight writers on one log that none of them has opened earlier; print their shares."""
    words = [[kind, place, mode, waiting, f"w{i}", str(seconds)] for i in range(WRITERS)]
    ends = at_once(_WRITER, words, seconds)
    counts = [end["count"] for end in ends]
    waits = sorted(itertools.chain.from_iterable(end["waits"] for end in ends))
    errors = [error for end in ends for error in end["errors"]]
    share = min(counts) / (sum(counts) / WRITERS)
    print(
        f"{title}: {sum(counts) / seconds:,.0f} appends/s together; by writer "
        f"{' '.join(map(str, sorted(counts)))}; the least of them {share:.2f} of a fair share"
        f"{verdict(share, 0.5)}; waiting p50 {waits[len(waits) // 2] * 1000:.1f} ms, "
        f"p99 {waits[len(waits) * 99 // 100] * 1000:.1f} ms, at most {waits[-1] * 1000:.0f} ms; "
        f"errors {len(errors)} {'(asked for: none)' if not errors else errors[:2]}"
    )


PARTS: dict[str, Callable[[], None]] = {
    "append": append,
    "postgres": append_postgres,
    "fair": fair,
    "follow": log_reading.follow,
    "replay": log_reading.replay,
}


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parts = parser.parse_args().parts or list(PARTS)
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for part in parts:
        PARTS[part]()


if __name__ == "__main__":
    main()
