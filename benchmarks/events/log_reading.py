"""Reading parts of `benchmarks.events.log`: following a log, and replaying a run."""

from __future__ import annotations

import gc
import itertools
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from agent_forge.evaluation.data.outcomes import Pool
from agent_forge.events import Envelope, canonical_json, chain
from agent_forge.events.databases import sqlite
from agent_forge.evomerge.config import parse
from agent_forge.evomerge.run import state
from agent_forge.evomerge.run.events import REGISTRY
from testing.worlds import fake_world

ROOT = Path(__file__).parents[2]
#: Rows of the logs that are followed.
SHORT, LONG = 10_000, 200_000
#: Rows of the run that is replayed, and how often.
ROWS, REPETITIONS = 100_000, 3


def verdict(ratio: float, goal: float | None) -> str:
    """Return text that says the goal and whether the ratio meets it; empty without a goal."""
    return "" if goal is None else f" (asked for {goal}: {'met' if ratio >= goal else 'MISSED'})"


def stored(path: Path, rows: Iterable[Envelope]) -> None:
    """Write a log with these rows, in one transaction."""
    sqlite.open_store(path).close()
    connection = sqlite3.connect(path)
    marks = ", ".join("?" for _ in Envelope._fields)
    connection.executemany(f"INSERT INTO events VALUES ({marks})", rows)
    connection.commit()
    connection.close()


def chained(contents: Iterable[tuple[str, int, str, str]], stream: str) -> Iterator[Envelope]:
    """Yield rows of one stream, hashes included, for (type, schema, data, key)."""
    head = chain.GENESIS
    for n, (type_, schema, data, key) in enumerate(contents, start=1):
        values: dict[str, Any] = {
            "stream": stream,
            "version": n,
            "event_id": f"{n:032x}-xxx",
            "type": type_,
            "schema": schema,
            "data": data,
            "key": key,
            "actor": "ada",
            "causation": None,
            "correlation": None,
            "recorded_at": "2026-01-01T00:00:00.000000+00:00",
            "code_version": "benchmark",
            "prev_hash": head,
        }
        head = chain.link(values)
        yield Envelope(position=n, **values, hash=head)


# ---- follow --------------------------------------------------------------------------------

_FOLLOWER = """
import sys
from pathlib import Path
from agent_forge.events.databases.sqlite import open_store
def kilobytes(what):
    return int(Path("/proc/self/status").read_text().partition(what + ":")[2].split()[0])
store = open_store(Path(sys.argv[1]))
store.read_all(limit=1)
Path("/proc/self/clear_refs").write_text("5")
before = kilobytes("VmRSS")
rows = sum(1 for _ in store.tail(stop=lambda: True))
print(rows, before, kilobytes("VmHWM") - before)
"""


def follow() -> None:
    """Print how much the peak memory of a child grows that follows each log from its beginning."""
    grown = {}
    for count in (SHORT, LONG):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.db"
            data = canonical_json({"text": "x" * 390})
            stored(path, chained((("noted", 1, data, f"k/{n}") for n in range(count)), "s"))
            outputs = [
                subprocess.run(
                    [sys.executable, "-c", _FOLLOWER, str(path)],
                    cwd=ROOT,
                    text=True,
                    check=True,
                    capture_output=True,
                ).stdout.split()
                for _ in range(3)
            ]
        assert all(int(rows) == count for rows, _, _ in outputs)
        grown[count] = statistics.median(int(growth) for _, _, growth in outputs)
        print(
            f"follow, {count:,} events: peak memory {grown[count]:,.0f} KiB above the "
            f"{int(outputs[0][1]):,} KiB before"
        )
    ratio = grown[LONG] / max(grown[SHORT], 1)
    print(f"follow: {LONG // SHORT} times the events, {ratio:.2f} times the memory")


# ---- replay --------------------------------------------------------------------------------

_ID = re.compile(r"[0-9a-f]{64}")
_GENERATION = re.compile(r'"generation":(\d+)')


def world(pools: dict[str, Pool], dimensions: int, **changes: object) -> list[Envelope]:
    """Return the log of a run of 20 generations; only its decisions and its shape are real."""

    def sketch(recipe_id: str) -> str:
        rng = fake_world.keys.generator("sketch", recipe_id)
        values = rng.standard_normal(dimensions).astype("<f4")
        return fake_world.base64.b64encode(values.tobytes()).decode()

    config = parse({"generations": 20, "convergence_patience": 0, **changes})
    with mock.patch.object(fake_world, "POOLS", pools):
        made = fake_world.World(config, sketcher=sketch)
        made.run()
    return made.rows


def lengthened(rows: Sequence[Envelope], count: int) -> Iterator[tuple[str, int, str, str]]:
    """Yield a run of `count` events: generations are repeated, each time with other candidates."""
    begin = next(i for i, row in enumerate(rows) if '"generation":1' in row.data)
    end = max(i for i, row in enumerate(rows) if row.type == "generation_completed") + 1
    generations = max(int(g) for g in _GENERATION.findall(rows[end - 1].data)) + 1
    given = {id_ for row in rows[:begin] for id_ in _ID.findall(row.data)}
    first = [(row.type, row.schema, row.data, row.key) for row in rows[:begin]]
    yield from first
    made = len(first)
    for again in itertools.count():
        for row in rows[begin:end]:
            if made == count:
                return
            text = _ID.sub(partial(_renamed, given=given, again=again), row.data)
            text = _GENERATION.sub(partial(_later, by=again * generations), text)
            yield row.type, row.schema, text, f"{row.key}+{again}"
            made += 1


def _renamed(found: re.Match[str], given: set[str], again: int) -> str:
    return found[0] if found[0] in given else f"{again:08x}{found[0][8:]}"


def _later(found: re.Match[str], by: int) -> str:
    return f'"generation":{int(found[1]) + by}'


def replay() -> None:
    """Measure a run with payloads as large as a real run's, and a run with small payloads."""
    real = {
        name: Pool(windows=n, questions=60)
        for name, n in {"code": 116, "data": 160, "math": 190}.items()
    }
    rows = world(real, 256, search_windows=40, search_questions=12)
    measured("replay, payloads of a real run", rows)
    rows = world({"code": Pool(windows=1, questions=0)}, 4, search_windows=1)
    measured("replay, the same events, small", rows)


def measured(title: str, rows: Sequence[Envelope]) -> None:
    """Print the types of events in the log, and how fast it is read, validated and folded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        run = list(chained(lengthened(rows, ROWS), rows[0].stream))
        stored(path, run)
        store = sqlite.open_store(path)
        read = _rate(lambda: sum(1 for _ in store.iterate(rows[0].stream)))
        both = _rate(lambda: state.fold(store.iterate(rows[0].stream)))
        store.close()
    loaded = _rate(lambda: _load(run))
    folded = _rate(lambda: state.fold(run))
    size = sum(len(row.data) for row in run) / len(run)
    print(f"{title}: {len(run):,} events of {size:,.0f} bytes")
    _mix(run)
    print(
        f"  read from SQLite {read:,.0f}/s, validated {loaded:,.0f}/s, validated and folded "
        f"{folded:,.0f}/s{verdict(folded, 100_000)}, {folded * size / 1e6:,.0f} MB/s; "
        f"read, validated and folded {both:,.0f}/s"
    )


def _mix(run: Sequence[Envelope]) -> None:
    """Print for each type of event its share, its size, and how fast it is validated."""
    for type_, count in Counter(row.type for row in run).most_common():
        some = list(itertools.islice((r for r in run if r.type == type_), 2_000))
        many = some * max(1, 500 // len(some))
        rate = _rate(partial(_load, many), len(many))
        size = sum(len(row.data) for row in some) / len(some)
        print(f"    {type_:22} {count / len(run):7.2%}  {size:8,.0f} bytes  {rate:9,.0f}/s")


def _load(rows: Sequence[Envelope]) -> None:
    for row in rows:
        REGISTRY.load(row)


def _rate(function: Callable[[], object], count: int = ROWS) -> float:
    """Return events a second, as the median of some calls."""
    times = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        kept = function()
        times.append(time.perf_counter() - began)
        del kept
        gc.collect()
    return count / statistics.median(times)
