"""Measured costs of the shared queue: database transactions, connections, Redis, the dispatcher.

Used by `benchmarks.scale`. Toy tasks, which have no work of their own, are done by a worker of two
devices, which dispatches. Then a worker of three devices comes, and its tasks are held under way.
What is counted in these four phases tells devices, the dispatcher and tasks apart.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import insert, text

from agent_forge.events import EventStore
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.worker.queue.device_table import DEVICES, DeviceTable
from agent_forge.worker.queue.dispatcher import Dispatcher
from agent_forge.worker.queue.leases import LEASES, Leases
from testing.services.cluster import Cluster, children
from testing.toy import toy_runs

#: Devices of the first worker, and of the second.
FIRST, SECOND = 2, 3
#: Seconds of a phase in which nothing happens, and of a lease, which is a fifth of the default: so a
#: phase has fifteen heartbeats.
REST, LEASE, DEFAULT_LEASE = 30.0, 12.0, 60.0
#: Runs whose tasks the second worker is held in: enough that each of its devices has one.
HELD = 6
#: Numbers of devices in the table of devices at which a step of the dispatcher is timed.
TABLES = (1, 10, 100, 1_000)
STEPS = 20


@dataclass(frozen=True)
class Links:
    """Connections to the database: measured on PostgreSQL, where their number is limited."""

    #: Connections of a worker besides those of its devices, of each of its devices, and those that
    #: dispatching adds.
    worker: int
    device: int
    dispatcher: int
    #: Connections that ordinary users can open together (max_connections less those reserved).
    limit: int
    #: MiB that one server process, which is one connection, has for itself.
    mebibytes: float

    def used(self, devices: int, each: int = 1) -> int:
        """Return the connections of devices, `each` of them a worker."""
        return self.dispatcher + self.device * devices + self.worker * -(-devices // each)

    def most(self, each: int = 1) -> int:
        """Return the number of devices, `each` of them a worker, that the limit is enough for."""
        return next(n for n in range(self.limit + 1) if self.used(n + 1, each) > self.limit)


@dataclass(frozen=True)
class Broker:
    """Use of Redis."""

    #: Connections of a worker that does not dispatch, and those that dispatching adds.
    worker: int
    dispatcher: int
    #: Commands a second of a worker without work, and commands and messages of a task.
    idle: float
    task: float
    messages: float


@dataclass(frozen=True)
class Queue:
    """Measured costs of a queue."""

    #: Transactions that write: a task, and a second of a device without work and of one at work.
    task_writes: float
    idle_writes: float
    busy_writes: float
    #: The same of the dispatcher, in a second.
    leader_writes: float
    #: Seconds of processor time: a task beyond its work, a second of a device without work, and one
    #: of the dispatcher that has none.
    task_cpu: float
    idle_cpu: float
    leader_cpu: float
    #: Transactions a second that only read: a device without work, the dispatcher without work, and
    #: the dispatcher while devices work. None on SQLite, which does not count them.
    idle_reads: float | None
    leader_reads: float | None
    busy_leader_reads: float | None
    broker: Broker
    links: Links | None


@dataclass(frozen=True)
class Counts:
    """Counters of what has been used, at one moment."""

    seconds: float
    writes: int
    transactions: int | None
    cpu: float
    commands: int
    messages: int

    @property
    def reads(self) -> int | None:
        """Transactions that only read; None if they are not counted."""
        return None if self.transactions is None else self.transactions - self.writes

    def since(self, before: Counts, name: str) -> float:
        """Return the growth of a counter."""
        return getattr(self, name) - getattr(before, name)

    def rate(self, before: Counts, name: str) -> float:
        """Return the growth of a counter a second."""
        return self.since(before, name) / self.since(before, "seconds")


def on_postgres(store: EventStore) -> bool:
    """Return True if the log is on PostgreSQL."""
    return store.database.engine.dialect.name == "postgresql"


def number(store: EventStore, query: str) -> int:
    """Return the number that a query finds."""
    with store.database.reading() as connection:
        return int(connection.execute(text(query)).scalar() or 0)


def writes(store: EventStore) -> int:
    """Return a counter of transactions that wrote: SQLite's in its header, PostgreSQL's next id."""
    if on_postgres(store):
        return number(store, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
    with store.database.reading() as connection:
        path = connection.exec_driver_sql("PRAGMA database_list").fetchone()
    assert path is not None
    with Path(path[2]).open("rb") as file:
        return int.from_bytes(file.read(28)[24:], "big")


def transactions(store: EventStore) -> int | None:
    """Return PostgreSQL's counter of transactions that ended in this database; None on SQLite."""
    if not on_postgres(store):
        return None
    columns = "xact_commit + xact_rollback"
    return number(store, f"SELECT {columns} FROM pg_stat_database WHERE datname = current_database()")


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


def own_memory(pid: int) -> float:
    """Return the MiB that a process shares with no other."""
    told = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kib) for kib in re.findall(r"^Private_\w+:\s+(\d+) kB", told, re.M)) / 1024


class Watched:
    """A cluster whose use of database, processor and Redis is counted."""

    def __init__(self, made: Cluster) -> None:
        """Open the log and a client of Redis; both are left out of what is counted."""
        self.made = made
        self.store = made.home.open_store()
        self.redis = made.redis.client()

    def close(self) -> None:
        """Close the log and the client."""
        self.store.close()
        self.redis.close()

    def counts(self) -> Counts:
        """Return the counters now."""
        commands: dict[str, Any] = self.redis.info("commandstats")
        calls = {name: found["calls"] for name, found in commands.items()}
        workers = [p for w in self.made.workers for p in (w.pid, *children(w))]
        return Counts(
            seconds=time.monotonic(),
            writes=writes(self.store),
            transactions=transactions(self.store),
            cpu=cpu_of(workers),
            commands=sum(n for name, n in calls.items() if not name.startswith("cmdstat_info")),
            messages=calls.get("cmdstat_lpush", 0),
        )

    def connections(self) -> list[int]:
        """Return the server processes of the workers' connections to PostgreSQL; [] on SQLite."""
        if not on_postgres(self.store):
            return []
        query = """SELECT pid FROM pg_stat_activity WHERE application_name = 'agent-forge'
                   AND datname = current_database() AND pid <> pg_backend_pid()"""
        with self.store.database.reading() as connection:
            return list(connection.execute(text(query)).scalars())

    def clients(self) -> int:
        """Return the number of the workers' connections to Redis."""
        return self.redis.info("clients")["connected_clients"] - 1

    def statuses(self) -> list[str]:
        """Return what the devices do, sorted."""
        return sorted(device.status for device in self.made.devices())

    def rest(self, statuses: list[str]) -> tuple[Counts, Counts]:
        """Wait until the devices do this and nothing is recorded; return counters then and later."""
        ends = [-1]

        def settled() -> bool:
            ends.append(self.store.end())
            return ends[-1] == ends[-2] and self.statuses() == statuses

        self.made.wait(settled, 300, pause=1.0)
        before = self.counts()
        time.sleep(REST)
        assert settled()
        return before, self.counts()

    def finish(self, runs: list[str]) -> None:
        """Wait for the end of runs."""

        def ended() -> bool:
            return all(repository.load(self.store, run).completed for run in runs)

        self.made.wait(ended, 300, pause=1.0)


def submitted(home: Home, run: str, tasks: int) -> str:
    """Submit a run of toy tasks; return its name."""
    return toy_runs.submit(home, run, steps=tasks // 50, width=50)


def measured(made: Cluster, tasks: int) -> Queue:
    """Return the costs of a queue, whose cluster has a lease of `LEASE` seconds and no worker yet."""
    with closing(Watched(made)) as watched:
        made.worker("--concurrency", str(FIRST))
        alone = watched.rest(["idle"] * FIRST)
        clients = [watched.clients()]
        began = watched.counts()
        watched.finish([submitted(made.home, "r", tasks)])
        worked = began, watched.counts()
        clients.append(watched.clients())
        first = len(watched.connections())
        made.worker("--concurrency", str(SECOND), **made.held("task-done"))
        more = watched.rest(["idle"] * (FIRST + SECOND))
        clients.append(watched.clients())
        names = [submitted(made.home, f"h{n}", 50) for n in range(HELD)]
        held = watched.rest(["busy"] * SECOND + ["idle"] * FIRST)
        made.release()
        watched.finish(names)
        return Queue(
            **of_log(alone, worked, more, held, tasks),
            broker=of_redis(alone, worked, clients, tasks),
            links=linked(watched, first) if on_postgres(watched.store) else None,
        )


Phase = tuple[Counts, Counts]


def of_log(alone: Phase, worked: Phase, more: Phase, held: Phase, tasks: int) -> dict[str, Any]:
    """Return transactions and processor time of a task, a device and the dispatcher.

    `alone` and `more` are phases without work of the first worker and of both, `worked` one of the
    first worker with tasks, `held` one in which the second worker's devices are at work.
    """

    def rate(phase: Phase, name: str) -> float:
        return phase[1].rate(phase[0], name)

    found: dict[str, Any] = {}
    for name in ("writes", "cpu"):
        device = (rate(more, name) - rate(alone, name)) / SECOND
        found[f"idle_{name}"] = device
        found[f"leader_{name}"] = rate(alone, name) - FIRST * device
        idle = rate(alone, name) * worked[1].since(worked[0], "seconds")
        found[f"task_{name}"] = (worked[1].since(worked[0], name) - idle) / tasks
    beats = (rate(held, "writes") - rate(more, "writes")) / SECOND
    # Heartbeats come as often as the lease says, by default more seldom than here.
    found["idle_writes"] *= LEASE / DEFAULT_LEASE
    found["busy_writes"] = found["idle_writes"] + beats * LEASE / DEFAULT_LEASE
    reads = alone[0].reads is not None
    device = (rate(more, "reads") - rate(alone, "reads")) / SECOND if reads else None
    found["idle_reads"] = device
    found["leader_reads"] = None if device is None else rate(alone, "reads") - FIRST * device
    at_work = None if device is None else rate(held, "reads") - (FIRST + SECOND) * device
    return {**found, "busy_leader_reads": at_work}


def of_redis(alone: Phase, worked: Phase, clients: list[int], tasks: int) -> Broker:
    """Return the use of Redis; `clients` are its connections before tasks, after them, and at last."""
    idle = alone[1].rate(alone[0], "commands")
    during = worked[1].since(worked[0], "commands")
    return Broker(
        worker=clients[2] - clients[1],
        dispatcher=clients[1] - clients[0],
        idle=idle,
        task=(during - idle * worked[1].since(worked[0], "seconds")) / tasks,
        messages=worked[1].since(worked[0], "messages") / tasks,
    )


def linked(watched: Watched, first: int) -> Links:
    """Return what the connections say, of which `first` are the first worker's; and the limit."""
    pids = watched.connections()
    reserved = "('superuser_reserved_connections', 'reserved_connections')"
    limit = number(
        watched.store,
        "SELECT current_setting('max_connections')::int - (SELECT sum(setting::int) "
        f"FROM pg_settings WHERE name IN {reserved})",
    )
    memory = statistics.median(own_memory(pid) for pid in pids)
    return Links(*divided(first, len(pids) - first), limit, memory)


def divided(first: int, second: int) -> tuple[int, int, int]:
    """Return the connections of a worker, of a device and of the dispatcher, from both workers'.

    The second worker has fewer besides its devices' than it has devices, and does not dispatch.
    """
    device, worker = divmod(second, SECOND)
    return worker, device, first - worker - FIRST * device


def stepped(home: Home) -> dict[int, float]:
    """Return the median seconds of a step of the dispatcher, by the number of devices at work.

    The devices are invented and on another machine, each with a task and its lease.
    """
    found = {}
    for count in TABLES:
        with closing(home.open_store()) as store:
            roster, leases = DeviceTable(store.database), Leases(store.database)
            _invent(store, count, roster.now(), leases.lifetime)
            dispatcher = Dispatcher(store, lambda *_: None, "benchmark")
            times = []
            for _ in range(STEPS):
                began = time.perf_counter()
                dispatcher.step()
                times.append(time.perf_counter() - began)
            found[count] = statistics.median(times)
    return found


def _invent(store: EventStore, count: int, now: float, lifetime: float) -> None:
    """Fill the tables of devices and leases with this many devices at work, and no others."""
    devices, leases = [], []
    for n in range(count):
        task = {"run": f"run-{n % 100}", "task": f"task-{n}"}
        devices.append(
            {"name": f"elsewhere/{n}", "owner": f"elsewhere/1/1/{n}", "device": "cpu"}
            | {"labels": "", "memory": 1 << 36, "only": False, "refused": "{}", "done": 9}
            | {"status": "busy", "beat": now + 600, "since": now, **task}
            | {"grant_run": task["run"], "grant_task": task["task"]}
        )
        lease = {"task": f"{task['run']}/{task['task']}", "owner": f"elsewhere/1/1/{n}"}
        leases.append({**lease, "fence": 1, "expires": now + lifetime})
    with store.database.writing() as connection:
        for table, rows in ((DEVICES, devices), (LEASES, leases)):
            connection.execute(table.delete())
            connection.execute(insert(table), rows)
