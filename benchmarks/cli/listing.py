"""Time of `forge runs` beyond bare Python, with few runs and with many.

    python -m benchmarks.cli.listing [--runs 10000] [--events 100]

The logs are invented: runs of `events` events each, of the small types. Asked for: under 0.5 s with
10,000 runs and a million events, and no more than with a hundredth of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from agent_forge.events import Envelope
from agent_forge.events.databases.sqlite import open_store
from agent_forge.events.projection import catch_up
from agent_forge.evomerge.run import events as run_events
from agent_forge.runs.lists.projections import Runs
from agent_forge.runs.streams import stream
from benchmarks.common import best, machine
from benchmarks.events.log_reading import chained, stored
from testing.worlds.fake_world import World


def contents(
    run: str, submitted: run_events.Submitted, count: int
) -> Iterator[tuple[str, int, str, str]]:
    """Yield (type, schema, data, key) of a run's `count` events."""
    first = submitted.model_copy(update={"run": run})
    yield first.type, first.schema_version, first.payload(), f"{run}/submitted"
    for n in range(count - 1):
        generation = n // 3
        events = (
            run_events.DiversityMeasured(generation=generation, diversity=0.5, level="healthy"),
            run_events.GenerationCompleted(generation=generation, ranking=("a" * 64,), scores=(1.0,)),
            run_events.ChampionChanged(
                generation=generation, recipe_id="a" * 64, previous=None, score=1.0 + n
            ),
        )
        event = events[n % 3]
        yield event.type, event.schema_version, event.payload(), f"{run}/{event.type}/{n}"


def rows(runs: int, count: int) -> Iterator[Envelope]:
    """Yield all rows of a log, run after run."""
    submitted = World().state.submitted
    assert submitted
    position = 0
    for n in range(runs):
        run = f"20260101-{n:06x}"
        for row in chained(contents(run, submitted, count), stream("evomerge", run)):
            position += 1
            yield row._replace(position=position, event_id=f"{position:036d}")


def measured(folder: Path, runs: int, count: int) -> float:
    """Return the seconds of `forge runs` on such a log, after its tables have caught up."""
    path = folder / "forge.db"
    stored(path, rows(runs, count))
    store = open_store(path)
    began = time.perf_counter()
    seen = catch_up(store, Runs())
    took = time.perf_counter() - began
    store.close()
    size = path.stat().st_size / 1e6
    print(
        f"{runs} runs, {seen} events, {size:.0f} MB; tables made in {took:.1f} s "
        f"({seen / took:,.0f} events/s)"
    )
    env = {**os.environ, "FORGE_HOME": str(folder), "FORGE_DATABASE_URL": ""}
    code = "from agent_forge.cli.main import main; main()"
    command = [sys.executable, "-c", code, "runs"]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == min(runs, 50)
    return best(lambda: subprocess.run(command, env=env, check=True, capture_output=True), 7)


def main() -> None:
    """Print the seconds with few and with many runs, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=100)
    given = parser.parse_args()
    bare = best(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), 7)
    print(f"{machine()}; bare Python {bare:.3f} s")
    times = []
    for runs in (max(1, given.runs // 100), given.runs):
        with tempfile.TemporaryDirectory() as folder:
            times.append(measured(Path(folder), runs, given.events) - bare)
        state = "ok" if times[-1] < 0.5 else "OVER 0.5 s"
        print(f"  forge runs: {times[-1]:.3f} s beyond bare Python ({state})")
    print(f"a hundred times the log takes {times[1] / times[0]:.2f} times as long")


if __name__ == "__main__":
    main()
