"""Time to submit, to decide and to list, with many queued runs of many users.

python -m benchmarks.worker.queue [--database postgresql]

Timed are submitting one more run, deciding what is next, and listing the queue. Each call is timed
by itself, with a tenth of the runs and with all of them; p99 is of these single times.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import update

from agent_forge.events import Cause, EventStore, New
from agent_forge.evomerge.config import parse
from agent_forge.evomerge.run import events
from agent_forge.evomerge.submission import planned
from agent_forge.runs.home import Home
from agent_forge.runs.lists import queries
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.queue.device_table import DEVICES, DeviceTable
from agent_forge.worker.queue.dispatcher import Dispatcher
from agent_forge.worker.queue.scheduler import Offer
from testing.services.servers import Postgres

USERS, RUNS, SAMPLES = 100, 10_000, 300


def fill(store: EventStore, start: int, stop: int) -> None:
    """Submit runs of all users in turn."""
    models = tuple(events.ModelReference(name=n, path=f"/models/{n}") for n in "abc")
    for number in range(start, stop):
        run = f"queued-{number}"
        event = events.Submitted(
            run=run,
            owner=f"user-{number % USERS}",
            config=parse({}),
            sources=models,
            base=None,
            data=(),
            priority=number % 7,
        )
        store.append(f"evomerge/{run}", 0, [New(event, f"{run}/submitted")], Cause(actor="ada"))


def timed(
    function: Callable[[int], object], before: Callable[[], object] = lambda: None
) -> list[float]:
    """Return the sorted seconds of `SAMPLES` calls; `before` runs untimed before each call."""
    times = []
    gc.collect()
    for number in range(SAMPLES):
        before()
        began = time.perf_counter()
        function(number)
        times.append(time.perf_counter() - began)
    return sorted(times)


def measure(store: EventStore, home: Home, count: int) -> dict[str, list[float]]:
    """Return the sorted seconds of each operation while `count` runs are queued."""
    models = tuple(events.ModelReference(name=n, path=f"/models/{n}") for n in "abc")

    def submit(number: int) -> None:
        commands_submit.submit(store, planned(parse({}), models, None, ()), f"more-{count}-{number}")

    found = {"submit": timed(submit), "list": timed(lambda _: queries.queue(store, 51))}
    roster = DeviceTable(store.database)
    roster.enter("device", "elsewhere/1/1/x", "cpu")
    roster.offers("device", "elsewhere/1/1/x", Offer(frozenset({"device:cpu"}), 1 << 40))
    dispatcher = Dispatcher(home.open_store(), lambda *_: None, "benchmark")
    dispatcher._leads()

    def free() -> None:
        free_again: dict[str, Any] = {"status": "idle", "grant_run": None, "grant_task": None}
        with store.database.writing() as connection:
            connection.execute(update(DEVICES).values(**free_again))

    def decide(_: int) -> None:
        assert dispatcher.step() == 1

    for _ in range(10):
        free()
        dispatcher.step()
    found["decide and grant"] = timed(decide, free)
    dispatcher._leases.release("@dispatcher")
    return found


def main() -> None:
    """Print p99 at both sizes, and the growth of the median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default="sqlite", choices=["sqlite", "postgresql"])
    database = parser.parse_args().database
    with tempfile.TemporaryDirectory() as name:
        server = Postgres(Path(name) / "postgres") if database == "postgresql" else None
        home = Home(Path(name) / "home", server.new_database() if server else None)
        store = home.open_store()
        fill(store, 0, RUNS // 10)
        few = measure(store, home, RUNS // 10)
        fill(store, RUNS // 10, RUNS)
        many = measure(store, home, RUNS)
        for what, times in many.items():
            p99, before = times[int(len(times) * 0.99)], few[what][int(SAMPLES * 0.99)]
            grown = statistics.median(times) / statistics.median(few[what])
            print(
                f"{what}, {database}: p99 {1000 * p99:.1f} ms with {RUNS:,} runs, "
                f"{1000 * before:.1f} ms with {RUNS // 10:,}; median {grown:.2f} times as long "
                "(asked for: 50 ms)"
            )
        store.close()
        if server:
            server.stop()


if __name__ == "__main__":
    main()
