"""Costs of a shared queue by its size: constants measured here, and a simulation of the rest.

    python -m benchmarks.scale [--database sqlite|postgresql]

Prints the tables of docs/scale.md as Markdown: what an event, a task, a device and the dispatcher cost
in the log, in connections and in Redis, what that makes of 1 to 1,000 devices, what runs, trainings
and pipelines take, a million runs in a list, and the artifact store.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from agent_forge.events import EventStore, New
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from benchmarks import scale_queue, scale_runs, scale_store
from benchmarks import scale_tables as tables
from benchmarks.common import machine
from benchmarks.events.log import note
from benchmarks.scale_simulation import Measured
from testing.services.cluster import Cluster
from testing.services.servers import Postgres
from testing.toy.toy_kind import KNOWN

APPENDS = 300


def append_seconds(store: EventStore) -> float:
    """Return the median seconds of appends of one event."""
    times = []
    for number in range(APPENDS):
        began = time.perf_counter()
        store.append("scale", number, [New(note(number), f"scale/{number}")])
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measured(homes: Callable[[], Home], tasks: int) -> Measured:
    """Measure all constants of a database; each part has a home of its own."""
    home = homes()
    made = Cluster(home.folder.parent / "cluster", home.url, scale_queue.LEASE, {FURTHER: KNOWN})
    try:
        queue = scale_queue.measured(made, tasks)
    finally:
        made.close()
    with closing(homes().open_store()) as store:
        write = append_seconds(store)
    steps, home = scale_queue.stepped(homes()), homes()
    return Measured(write, queue, steps, scale_runs.merged(home), home)


def say(title: str, content: str) -> None:
    """Print a table under its title, and the load under which it was measured."""
    print(f"{title}, load {os.getloadavg()[1]:.1f}\n\n{content}", flush=True)


def of_databases(databases: Iterable[str], tasks: int) -> dict[str, Measured]:
    """Measure databases one after another, and print at once what is of one of them."""
    found: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, numbers = Path(name), itertools.count()
        for database in databases:
            server = Postgres(folder / "postgres") if database == "postgresql" else None

            def home(server: Postgres | None = server) -> Home:
                place = folder / f"{next(numbers)}" / "home"
                return Home(place, server.new_database() if server else None)

            one = found[database] = measured(home, tasks)
            say(f"{tables.NAMES[database]}: runs", tables.by_runs(one.recorded))
            if server:
                say("connections", tables.by_connections(one.queue))
                server.stop()
            else:
                say("kinds", tables.by_kinds(scale_runs.other_kinds(home)))
                say("list", tables.by_questions(*scale_runs.lists(one.home)))
    return found


def of_store() -> None:
    """Measure the artifact store, and print its tables."""
    artifacts = scale_store.measured()
    say("store", tables.by_artifacts(artifacts))
    say("traffic of snapshots", tables.by_traffic(artifacts))
    say("a million champions", tables.by_champions(artifacts))
    listed, seconds = scale_store.LISTED, scale_store.listing()
    say("names", f"Listing the names of {listed:,} artifacts takes {seconds:.1f} s.\n")


def main() -> None:
    """Measure, simulate and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", choices=[*tables.NAMES], help="Only this one.")
    parser.add_argument("--tasks", type=int, default=200)
    given = parser.parse_args()
    os.environ[FURTHER] = KNOWN
    print(f"{machine()}\n", flush=True)
    found = of_databases([given.database] if given.database else tables.NAMES, given.tasks)
    say("constants", tables.constants(found))
    say("dispatcher", tables.by_steps(found))
    columns = tables.columns_of(found)
    say("devices: tasks/s, at work, log written, p99 of a wait", tables.by_devices(columns))
    of_store()


if __name__ == "__main__":
    main()
