"""Speed of the shared queue with real workers, a real Redis and real processes.

python -m benchmarks.worker.cluster [first] [overhead] [two] [--database postgresql]

first      time from `submit` to the first task's claim, with a waiting worker
overhead   time from one event to the next on one device, less the work itself
two        tasks a second with two processes of one thread each, against one such process

Ratios and counts are from one run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.events.log_reading import verdict
from testing.models import toy_models
from testing.models.toys import Toys
from testing.services.cluster import Cluster
from testing.services.servers import Postgres
from testing.worlds import runs

#: Number of submits that are timed, and of runs that keep two processes busy.
FIRST, RUNS = 9, 3


@contextmanager
def cluster(database: str) -> Iterator[Cluster]:
    """Start a cluster on a database of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Postgres(folder / "postgres") if database == "postgresql" else None
        made = Cluster(folder, server.new_database() if server else None, lease=60)
        try:
            yield made
        finally:
            made.close()
            if server:
                server.stop()


def family(folder: Path, **changes: Any) -> Toys:
    """Write small models and data below a folder."""
    base, sources = toy_models.family(folder / "models", **changes)
    return Toys(base, tuple(sources), toy_models.data(folder / "data"))


def ready(made: Cluster, devices: int = 1) -> None:
    """Wait until exactly `devices` devices are idle."""
    made.wait(lambda: sum(d.status == "idle" for d in made.devices()) == devices)


def when(row: Any) -> float:
    """Return the time at which an event was recorded, in seconds since 1970."""
    return datetime.fromisoformat(row.recorded_at).timestamp()


def first(database: str) -> None:
    """Print the time from `submit` to the first task's claim.

    A device's row says since when it is busy; the log says when the run was submitted.
    """
    with cluster(database) as made, tempfile.TemporaryDirectory() as name:
        toys = family(Path(name))
        made.worker()
        ready(made)
        found = []
        for number in range(FIRST):
            run = runs.submit(made.home, toys, f"r{number}", generations=0)
            claimed = made.wait(lambda run=run: [d for d in made.devices() if d.run == run])
            found.append(claimed[0].now - claimed[0].seconds - when(made.events(run)[0]))
            made.forge("cancel", run)
            ready(made)
        seconds = statistics.median(found)
        print(
            f"first, {database}: from submit to the first task's claim {seconds:.3f} s at the median, "
            f"{max(found):.3f} s at the most of {FIRST} (asked for: 1 s)"
        )


def overhead(database: str) -> None:
    """Print the time between events less the seconds of work in them, for one run on one device."""
    with cluster(database) as made, tempfile.TemporaryDirectory() as name:
        toys = family(Path(name))
        made.worker()
        ready(made)
        runs.submit(made.home, toys, generations=4)
        made.finish(pause=2.0)
        rows = made.events()
        work = [row for row in rows if "seconds" in json.loads(row.data)]
        places = {row.position: when(row) for row in rows}
        gaps = []
        for row in work:
            before = places.get(row.position - 1)
            if before is not None:
                gaps.append(when(row) - before - json.loads(row.data)["seconds"])
        median, most = statistics.median(gaps), sorted(gaps)[int(len(gaps) * 0.95)]
        print(
            f"overhead, {database}: {1000 * median:.1f} ms a task at the median, {1000 * most:.1f} ms "
            f"at the 95th percentile of {len(gaps)} tasks (asked for: 50 ms)"
        )


def two(database: str) -> None:
    """Print the tasks a second of two processes against one.

    The runs are of one user, and there are enough so that every process always has a task. A task
    takes a third of a second.
    """
    rates: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        toys = family(Path(name), hidden_size=96, intermediate_size=384, num_hidden_layers=6)
        for count in (1, 2, 2, 1):
            with cluster(database) as made:
                made.worker("--concurrency", str(count))
                ready(made, count)
                rates[count].append(rate_of(made, toys))
    one, both = statistics.mean(rates[1]), statistics.mean(rates[2])
    print(
        f"two, {database}: {one:.2f} tasks/s with one process, {both:.2f} with two, "
        f"ratio {both / one:.2f}{verdict(both / one, 1.7)}"
    )


def rate_of(made: Cluster, toys: Toys) -> float:
    """Return the tasks a second from the first task's end until all runs but the last are over."""
    names = [f"r{n}" for n in range(RUNS)]
    for run in names:
        runs.submit(made.home, toys, run, search_windows=400, search_questions=400, generations=1)
    for run in names[:-1]:
        made.finish(run, seconds=900, pause=2.0)
    rows = [row for run in names for row in made.events(run) if row.actor.startswith("worker/")]
    done = sorted(when(row) for row in rows if "seconds" in json.loads(row.data))
    ended = max(when(made.events(run)[-1]) for run in names[:-1])
    within = [moment for moment in done if moment <= ended]
    return (len(within) - 1) / (within[-1] - within[0])


def main() -> None:
    """Run the parts that are named, or all."""
    parts = {"first": first, "overhead": overhead, "two": two}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []])
    parser.add_argument("--database", default="sqlite", choices=["sqlite", "postgresql"])
    given = parser.parse_args()
    for name in given.parts or parts:
        parts[name](given.database)


if __name__ == "__main__":
    main()
