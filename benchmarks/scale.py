"""Costs of a shared queue by its size: constants measured here, and a simulation of the rest.

    python -m benchmarks.scale [--database sqlite|postgresql] [--tasks 200]

Prints the tables of docs/scale.md: what an event, a task and an idle device cost in the log
(transactions, bytes, processor time), what that makes of 1 to 1,000 devices, and of a million runs.
"""

from __future__ import annotations

import argparse
import heapq
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import text

from benchmarks.common import machine
from benchmarks.events.log import note
from benchmarks.events.log_reading import world
from evaluation.data.outcomes import Pool
from events import EventStore, New
from events.projection import rebuild
from evomerge.run.state import RunState, fold
from runs import keys
from runs.home import Home
from runs.kinds import FURTHER
from runs.lists.projections import Runs
from testing.services.cluster import Cluster, children
from testing.services.servers import Postgres
from testing.toy import toy_runs
from testing.toy.toy_kind import KNOWN
from worker import append

DEVICES = (1, 10, 100, 1_000)
#: Seconds of work in a task: a merge of a small model, a measurement, a segment of a training.
LENGTHS = (1.0, 10.0, 60.0)
APPENDS, IDLE_SECONDS, SIMULATED = 300, 30.0, 10_000
#: Default of FORGE_LEASE_SECONDS.
LEASE = 60.0


@dataclass(frozen=True)
class Costs:
    """Measured constants of one database on one machine."""

    #: Seconds of an append of one event, at the median, one writer.
    write: float
    #: Bytes of the database for an event of a merging run, indexes and tables included.
    event_bytes: float
    #: Transactions that write: a task on the queue, and a second of a device without work.
    task_writes: float
    idle_writes: float
    #: Seconds of processor time: a task beyond its work, and a second of a device without work.
    task_cpu: float
    idle_cpu: float
    #: Events of a merging run of 20 generations.
    run_events: int
    #: Events of such a run that one process reads, checks and folds in a second.
    folded: float
    #: Events a second that the tables are made of again.
    rebuilt: float


# ---- measuring ---------------------------------------------------------------------------------


def transactions(store: EventStore) -> int:
    """Return a counter of transactions that wrote: SQLite's in its header, PostgreSQL's commits."""
    with store.database.reading() as connection:
        if store.database.engine.dialect.name == "postgresql":
            found = connection.execute(text("SELECT pg_current_xact_id()::text")).scalar()
            return int(found or 0)
        path = connection.exec_driver_sql("PRAGMA database_list").fetchone()
    assert path is not None
    with Path(path[2]).open("rb") as file:
        return int.from_bytes(file.read(28)[24:], "big")


def cpu_of(pids: list[int]) -> float:
    """Return the seconds of processor time that processes have used, with children that ended."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def append_seconds(store: EventStore) -> float:
    """Return the median seconds of appends of one event."""
    times = []
    for number in range(APPENDS):
        began = time.perf_counter()
        store.append("scale", number, [New(note(number), f"scale/{number}")])
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def queued(made: Cluster, tasks: int) -> dict[str, float]:
    """Return what a task costs on two devices, and what a second costs a device without work."""
    process = made.worker("--concurrency", "2")
    made.wait(lambda: [d.status for d in made.devices()] == ["idle", "idle"])
    with closing(made.home.open_store()) as store:

        def spent() -> tuple[int, float]:
            return transactions(store), cpu_of([process.pid, *children(process)])

        before, began = spent(), time.monotonic()
        time.sleep(IDLE_SECONDS)
        after, passed = spent(), 2 * (time.monotonic() - began)
        idle = {
            "idle_writes": (after[0] - before[0]) / passed,
            "idle_cpu": (after[1] - before[1]) / passed,
        }
        before, began = spent(), time.monotonic()
        toy_runs.submit(made.home, "r", steps=tasks // 50, width=50)
        made.wait(lambda: toy_runs.state(made.home, "r").completed, 300, pause=0.5)
        after, passed = spent(), 2 * (time.monotonic() - began)
    writes, cpu = after[0] - before[0], after[1] - before[1]
    return idle | {
        "task_writes": (writes - idle["idle_writes"] * passed) / tasks,
        "task_cpu": (cpu - idle["idle_cpu"] * passed) / tasks,
    }


def recorded(home: Home) -> dict[str, Any]:
    """Return what a merging run of 20 generations takes in the log, and how fast it is read."""
    pools = {name: Pool(windows=n, questions=60) for name, n in (("code", 116), ("math", 190))}
    rows = world(pools, 256, search_windows=40, search_questions=12)
    registry, runs = RunState.registry, 5
    with closing(home.open_store()) as store:
        before = size_of(store)
        for number in range(runs):
            events = [New(registry.load(row), f"{number}/{row.key}") for row in rows]
            for version in range(0, len(events), 10):
                stream = f"evomerge/scale-{number}"
                store.append(stream, version, events[version : version + 10])
        append.project(store)
        grown = size_of(store) - before
        folded = _rate(len(rows), lambda: fold(rows))
        rebuilt = _rate(runs * len(rows), lambda: rebuild(store, Runs()))
    found = {"event_bytes": grown / (runs * len(rows)), "run_events": len(rows)}
    return found | {"folded": folded, "rebuilt": rebuilt}


def size_of(store: EventStore) -> int:
    """Return the bytes of the database."""
    with store.database.reading() as connection:
        if store.database.engine.dialect.name == "postgresql":
            query = "SELECT pg_database_size(current_database())"
            return int(connection.execute(text(query)).scalar() or 0)
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        return int(pages or 0) * int(connection.exec_driver_sql("PRAGMA page_size").scalar() or 0)


def _rate(count: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def measured(database: str, tasks: int) -> Costs:
    """Measure all constants on a database of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Postgres(folder / "postgres") if database == "postgresql" else None
        url = [server.new_database() if server else None for _ in range(3)]
        made = Cluster(folder / "cluster", url[0], LEASE, {FURTHER: KNOWN})
        os.environ[FURTHER] = KNOWN
        try:
            costs = queued(made, tasks)
        finally:
            made.close()
        with closing(Home(folder / "one", url[1]).open_store()) as store:
            write = append_seconds(store)
        found = recorded(Home(folder / "two", url[2]))
        if server:
            server.stop()
    return Costs(write=write, **costs, **found)


# ---- simulating --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Simulated:
    """The outcome of a simulated queue."""

    #: Share of the devices' time that is work.
    working: float
    #: Share of the time that the log is being written.
    writing: float
    #: Seconds that a write waits for its turn, at the 99th percentile.
    wait: float
    tasks_per_second: float


def simulate(devices: int, seconds: float, costs: Costs, tasks: int = SIMULATED) -> Simulated:
    """Let devices do tasks whose writes, and the devices' heartbeats, pass one writer in turn.

    The lengths of tasks are exponential with this mean, from a keyed generator. A device's heartbeats
    come at the measured rate, also while it works; the next one waits for the one before.
    """
    rng = keys.generator("scale", devices, str(seconds), tasks)
    writes = max(1, round(costs.task_writes))
    period = 1 / costs.idle_writes if costs.idle_writes else 0.0
    #: (time, device, writes left of its task); 0 left: a heartbeat.
    waiting = [(float(rng.exponential(seconds)), n, writes) for n in range(devices)]
    if period:
        waiting += [(period * (n + 1) / devices, n, 0) for n in range(devices)]
    heapq.heapify(waiting)
    free = busy = worked = now = 0.0
    waits: list[float] = []
    done = 0
    while done < tasks:
        now, device, left = heapq.heappop(waiting)
        begins = max(now, free)
        free = begins + costs.write
        busy += costs.write
        if left == 0:
            heapq.heappush(waiting, (max(now + period, free), device, 0))
            continue
        waits.append(begins - now)
        if left > 1:
            heapq.heappush(waiting, (free, device, left - 1))
            continue
        length = float(rng.exponential(seconds))
        done, worked = done + 1, worked + length
        heapq.heappush(waiting, (free + length, device, writes))
    waits.sort()
    span = max(now, free)
    rate = done / span
    return Simulated(
        working=min(1.0, rate * seconds / devices),
        writing=min(1.0, busy / span),
        wait=waits[int(len(waits) * 0.99)],
        tasks_per_second=rate,
    )


# ---- printing ----------------------------------------------------------------------------------


def constants(costs: Costs) -> list[str]:
    """Return the table of constants."""
    rows = [
        ("append of one event, one writer", f"{1000 * costs.write:.2f} ms"),
        ("transactions of a task", f"{costs.task_writes:.1f}"),
        ("processor time of a task beyond its work", f"{1000 * costs.task_cpu:.0f} ms"),
        ("transactions of an idle device, a minute", f"{60 * costs.idle_writes:.1f}"),
        ("processor time of an idle device, a minute", f"{60 * costs.idle_cpu:.2f} s"),
        ("events of a merging run of 20 generations", f"{costs.run_events:,}"),
        ("bytes of one of its events, with indexes and tables", f"{costs.event_bytes:,.0f}"),
        ("such a run in the log", f"{costs.run_events * costs.event_bytes / 1e6:.1f} MB"),
        ("events folded a second, one process", f"{costs.folded:,.0f}"),
        ("events a second when tables are made again", f"{costs.rebuilt:,.0f}"),
    ]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def by_devices(costs: Costs) -> list[str]:
    """Return the table of simulated queues."""
    told = [
        "| devices | seconds a task | tasks/s | devices at work | log written | p99 of a wait |"
    ]
    told.append("|---|---|---|---|---|---|")
    for devices in DEVICES:
        for seconds in LENGTHS:
            found = simulate(devices, seconds, costs)
            told.append(
                f"| {devices:,} | {seconds:g} | {found.tasks_per_second:,.1f} | {found.working:.0%} "
                f"| {found.writing:.0%} | {1000 * found.wait:,.0f} ms |"
            )
    return told


def by_runs(costs: Costs) -> list[str]:
    """Return the table of runs by number: bytes, and hours to make tables and to verify all."""
    told = [
        "| runs of 20 generations | events | log | tables made again | all folded, one process |"
    ]
    told.append("|---|---|---|---|---|")
    for runs in (100, 10_000, 1_000_000):
        events = runs * costs.run_events
        told.append(
            f"| {runs:,} | {events:,} | {events * costs.event_bytes / 1e9:,.1f} GB "
            f"| {events / costs.rebuilt / 3600:,.2f} h | {events / costs.folded / 3600:,.2f} h |"
        )
    return told


def main() -> None:
    """Measure, simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default="sqlite", choices=["sqlite", "postgresql"])
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument(
        "--write",
        type=float,
        help="simulate with this many ms an append, of a machine without load",
    )
    given = parser.parse_args()
    costs = measured(given.database, given.tasks)
    print(f"{given.database}, {machine()}, load {os.getloadavg()[1]:.1f}")
    if given.write is not None:
        print(f"append measured: {1000 * costs.write:.2f} ms; simulated with {given.write:g} ms")
        costs = replace(costs, write=given.write / 1000)
    print()
    for table in (constants, by_devices, by_runs):
        print("\n".join(table(costs)), end="\n\n")


if __name__ == "__main__":
    main()
