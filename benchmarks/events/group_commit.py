"""Events a second that one and eight writers append to a log on SQLite.

    python -m benchmarks.events.group_commit [--seconds 3] [--batches 1 100] [--mode wal]

Writers are threads of one process, which share commits, or processes, which do not. Each appends to
a stream of its own, at the version that it expects, and goes on when its append has returned. The
log is on disk (`--disk FOLDER`; synchronous=FULL) and then in memory, where a sync is free: the
second figure is what the processor allows.

    events/s     events that were durable, a second; each of about 400 bytes
    of bare      share of what sqlite3 alone inserts with one writer and the same number a commit
    a sync       events for each fdatasync that the disk does in the same time, one after the other
    CPU          processor time an event, of all writers and threads; making the event included
"""

from __future__ import annotations

import argparse
import itertools
import os
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

from agent_forge.events import EventStore, New
from agent_forge.events.databases import sqlite
from benchmarks.events.log import _row, at_once, in_mode, note, plain_connection, plain_sqlite

WRITERS = 8
#: Program of a writing process; prints its events and its processor time.
_WRITER = """
import json, sys, time
from pathlib import Path
from benchmarks.events.group_commit import in_mode, sqlite, write
path, mode, name, batch, seconds = sys.argv[1:]
with in_mode(mode):
    store = sqlite.open_store(Path(path))
print("ready", flush=True)
sys.stdin.readline()
began = time.process_time()
count = write(store, name, int(batch), float(seconds))
print(json.dumps([count, time.process_time() - began]))
"""


def write(store: EventStore, name: str, batch: int, seconds: float) -> int:
    """Append batches to the stream `name` for `seconds`; return the number of events."""
    end, version = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        numbers = range(version, version + batch)
        store.append(name, version, [New(note(n), f"{name}/{n}") for n in numbers])
        version += batch
    return version


def threads(path: Path, mode: str, writers: int, batch: int, seconds: float) -> tuple[int, float]:
    """Return (events, processor seconds) of writers that are threads with one store."""
    counts: list[int] = []
    with closing(sqlite.open_store(path)) as store:
        crowd = [
            threading.Thread(
                target=lambda name: counts.append(write(store, name, batch, seconds)), args=(f"w{n}",)
            )
            for n in range(writers)
        ]
        began = time.process_time()
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()
    return sum(counts), time.process_time() - began


def processes(path: Path, mode: str, writers: int, batch: int, seconds: float) -> tuple[int, float]:
    """Return (events, processor seconds) of writers that are processes."""
    sqlite.open_store(path).close()
    words = [str(path), mode], [str(batch), str(seconds)]
    ends = at_once(_WRITER, [[*words[0], f"w{n}", *words[1]] for n in range(writers)], seconds)
    return sum(count for count, _ in ends), sum(seconds for _, seconds in ends)


def bare(folder: Path, batch: int, seconds: float) -> float:
    """Return the events a second that the driver alone inserts, `batch` a commit."""
    path = folder / f"bare-{batch}.db"
    store, numbers = sqlite.open_store(path), itertools.count()
    with closing(plain_connection(path, store)) as connection:
        store.close()
        insert, count, taken = plain_sqlite(connection), 0, 0.0
        while taken < seconds:
            rows = [_row(next(numbers)) for _ in range(batch)]
            began = time.perf_counter()
            insert([rows])
            taken, count = taken + time.perf_counter() - began, count + batch
    return count / taken


def syncs(folder: Path, seconds: float) -> float:
    """Return the number of blocks a second that are written and synced, one after the other."""
    with (folder / "synced").open("wb", buffering=0) as file:
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            count += 1
    return count / seconds


def measure(folder: Path, mode: str, batches: list[int], seconds: float) -> None:
    """Print the lines of one folder."""
    names = itertools.count()
    for batch in batches:
        for how, writers in ((threads, 1), (threads, WRITERS), (processes, 1), (processes, WRITERS)):
            rate = syncs(folder, seconds / 3)
            alone = bare(folder, batch, seconds / 3)
            (folder / f"bare-{batch}.db").unlink()
            count, cpu = how(folder / f"{next(names)}.db", mode, writers, batch, seconds)
            print(
                f"{writers} {how.__name__:9} {batch:4} an append: {count / seconds:8,.0f} events/s, "
                f"{count / seconds / alone:6.2f} of bare sqlite3 ({alone:,.0f}/s), "
                f"{count / seconds / rate:7.2f} a sync ({rate:,.0f}/s), CPU {cpu / count * 1e6:.0f} µs",
                flush=True,
            )


def main() -> None:
    """Measure on disk and in memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--mode", choices=("truncate", "wal"), default=sqlite.journal_mode())
    parser.add_argument("--disk", default=tempfile.gettempdir())
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"SQLite {sqlite3.sqlite_version}, {options.mode}, {os.cpu_count()} cores, load {load:.1f}")
    with in_mode(options.mode):
        for place in (options.disk, "/dev/shm"):
            print(f"in {place}:")
            with tempfile.TemporaryDirectory(dir=place) as folder:
                measure(Path(folder), options.mode, options.batches, options.seconds)


if __name__ == "__main__":
    main()
