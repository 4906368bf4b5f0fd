"""Kill a run at every kind of place, resume it, and compare with an undisturbed run.

    python -m benchmarks.crash_walk [--points 60] [--moments 40] [--generations 8]

Two passes. In the first the cache survives; in the second it is emptied at each restart, so that
everything is built and measured anew. Each point is a real SIGKILL of a real process during real
builds and evaluations. Every process is forked from one that has imported torch but never used it,
which saves the seconds of importing it and changes nothing else.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from events import failpoints
from evomerge.state import RunState
from tests import models, runs
from tests.conftest import Toys
from worker.home import Home

_FORK = multiprocessing.get_context("fork")


def _child(home: Home, failpoint: str) -> None:
    os.environ["FORGE_THREADS"] = "1"
    if failpoint:
        failpoints.arm(failpoint)
    runs.finish(home)
    os._exit(0)


def _start(home: Home, failpoint: str = "") -> Any:
    process = _FORK.Process(target=_child, args=(home, failpoint))
    process.start()
    return process


def _finish(home: Home) -> RunState:
    """Resume until the run has ended."""
    process = _start(home)
    process.join()
    return runs.state(home)


def _essence(state: RunState) -> tuple[str | None, str | None, str]:
    done = state.completed
    return state.champion, done.digest if done else None, state.lineage_digest()


def _walk(
    where: Path, toys: Toys, generations: int, points: list[str], moments: list[float], empty: bool
) -> tuple[int, int, set]:
    """Kill at each point and moment; (kills that happened, resumed runs, results seen)."""
    results, kills = set(), 0
    for number, point in enumerate([*points, *moments]):
        home = Home(where / f"{'empty' if empty else 'kept'}-{number}")
        runs.submit(home, toys, generations=generations)
        if isinstance(point, str):
            process = _start(home, f"kill:{point}")
        else:
            process = _start(home)
            process.join(point)
            process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        if empty:
            shutil.rmtree(home.artifacts, ignore_errors=True)
        results.add(_essence(_finish(home)))
        shutil.rmtree(home.folder)
    return kills, len(points) + len(moments), results


def _spread(trace: list[str], count: int) -> list[str]:
    """`count` hits as "name:k", every failpoint at least twice, the rest evenly over the run."""
    hits: dict[str, int] = {}
    for name in trace:
        hits[name] = hits.get(name, 0) + 1
    chosen = [
        f"{name}:{k}" for name, n in sorted(hits.items()) for k in sorted({1, (n + 1) // 2, n})
    ]
    step = max(1, len(trace) // max(1, count - len(chosen)))
    seen: dict[str, int] = {}
    for index, name in enumerate(trace):
        seen[name] = seen.get(name, 0) + 1
        if index % step == 0 and len(chosen) < count:
            chosen.append(f"{name}:{seen[name]}")
    return list(dict.fromkeys(chosen))


def main() -> None:
    """Walk, print a line per pass; exit code 1 on any mismatch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--moments", type=int, default=40)
    parser.add_argument("--generations", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        process = _FORK.Process(target=_make, args=(where,))
        process.start()
        process.join()
        toys = Toys(where / "models/base", _sources(where), where / "data")
        home = Home(where / "undisturbed")
        runs.submit(home, toys, generations=given.generations)
        began = time.monotonic()
        process = _start(home, f"trace:{where / 'trace'}")
        process.join()
        seconds = time.monotonic() - began
        expected = _essence(runs.state(home))
        trace = (where / "trace").read_text().split()
        points = _spread(trace, given.points)
        rng = random.Random(0)
        moments = [rng.uniform(0.05, 0.95) * seconds for _ in range(given.moments)]
        print(f"undisturbed: {seconds:.1f} s, {len(trace)} failpoint hits of "
              f"{len(set(trace))} kinds, champion {str(expected[0])[:12]}")  # fmt: skip
        bad = False
        for empty in (False, True):
            began = time.monotonic()
            kills, total, results = _walk(where, toys, given.generations, points, moments, empty)
            wrong = results - {expected}
            bad |= bool(wrong) or kills < total
            print(f"cache {'emptied' if empty else 'kept'} at restart: {len(points)} failpoints and "
                  f"{len(moments)} moments, {kills} SIGKILLs, {len(wrong)} other results, "
                  f"{time.monotonic() - began:.0f} s")  # fmt: skip
        raise SystemExit(int(bad))


def _make(where: Path) -> None:
    models.family(where / "models")
    models.data(where / "data")


def _sources(where: Path) -> tuple[Path, ...]:
    return tuple(where / "models" / f"source{i}" for i in range(3))


if __name__ == "__main__":
    main()
