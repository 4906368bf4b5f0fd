"""Crash tests of a run: kill it at every kind of point, resume it, compare with an undisturbed run.

    python -m benchmarks.worker.crash_walk [--points 60] [--moments 40] [--generations 8]
    python -m benchmarks.worker.crash_walk --strategy auto …
    python -m benchmarks.worker.crash_walk --kind cognate …          a training in miniature
    python -m benchmarks.worker.crash_walk --kind pipeline …         that and a merging run in a row
    python -m benchmarks.worker.crash_walk --kind compression …      codecs and mixtures of a toy model
    python -m benchmarks.worker.crash_walk --database postgresql [--server-kills 25] …

There are two passes. In the first the cache survives. In the second it is emptied at each restart,
so that everything is built and measured again. Each point is a real SIGKILL of a real process
during real builds and evaluations. Every process is forked from one that has imported torch but
never used it, which saves the seconds of the import and changes nothing else. On PostgreSQL a third
pass kills the server, with everything it started, at random moments, and starts it again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from events import failpoints
from runs import kinds
from runs.home import Home
from testing.models import toy_models
from testing.models.toys import Toys
from testing.services.servers import Postgres
from testing.worlds import cognate_runs, compression_runs, pipeline_runs, runs

#: Submits the run to a home.
Submit = Callable[[Home], object]

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


def _finish(home: Home) -> Any:
    """Resume the run in a new process until it has ended."""
    process = _start(home)
    process.join()
    return runs.state(home)


def _essence(state: Any) -> tuple[str | None, str]:
    """Return the digest of the result's weights, and of what luck must not change."""
    result = kinds.of(state.kind).result(state) if state.completed else None
    return result, state.lineage_digest()


def _home(where: Path, number: object, server: Postgres | None) -> Home:
    """Return a new home, with a database of its own."""
    folder = where / f"home-{os.getpid()}-{number}"
    return Home(folder, server.new_database() if server else None)


def _kill_server(
    where: Path, submit: Submit, moments: list[float], server: Postgres
) -> list[tuple[bool, list]]:
    """Kill the server at each moment and start it again; the run continues or is resumed.

    Return for each moment whether the run was still alive, and the result of the resumed run.
    """
    results = []
    for number, moment in enumerate(moments):
        home = _home(where, f"server-{number}", server)
        submit(home)
        process = _start(home)
        process.join(moment)
        alive = process.exitcode is None
        server.kill()
        server.start()
        process.join()
        results.append((alive, list(_essence(_finish(home)))))
        shutil.rmtree(home.folder)
    return results


def _walk(
    where: Path,
    submit: Submit,
    points: list[str | float],
    empty: bool,
    server: Postgres | None,
) -> list[tuple[bool, list]]:
    """Kill at each point; return whether the kill happened, and the result of the resumed run."""
    results = []
    for number, point in enumerate(points):
        home = _home(where, number, server)
        submit(home)
        process = _start(home, f"kill:{point}" if isinstance(point, str) else "")
        if isinstance(point, float):
            process.join(point)
            process.kill()
        process.join()
        killed = process.exitcode == -signal.SIGKILL
        if empty:
            for cache in (home.artifacts, home.folder / "models"):
                shutil.rmtree(cache, ignore_errors=True)
        results.append((killed, list(_essence(_finish(home)))))
        shutil.rmtree(home.folder)
    return results


def _walk_all(
    where: Path,
    submit: Submit,
    points: list[str | float],
    empty: bool,
    server: Postgres | None,
    processes: int,
) -> list[tuple[bool, list]]:
    """Run `_walk` with the points divided among processes."""
    workers = []
    for share in range(processes):
        mine, out = points[share::processes], where / f"share-{empty}-{share}.json"

        def work(mine: list = mine, out: Path = out) -> None:
            out.write_text(json.dumps(_walk(where, submit, mine, empty, server)))

        workers.append((_FORK.Process(target=work), out))
    for process, _ in workers:
        process.start()
    for process, _ in workers:
        process.join()
    return [row for _, out in workers for row in json.loads(out.read_text())]


def _spread(trace: list[str], count: int) -> list[str]:
    """Choose `count` hits as "name:k": every failpoint's first, middle, last, then evenly more."""
    hits = {name: trace.count(name) for name in sorted(set(trace))}
    chosen = {f"{name}:{k}" for name, n in hits.items() for k in (1, (n + 1) // 2, n)}
    seen: dict[str, int] = {}
    everything = []
    for name in trace:
        seen[name] = seen.get(name, 0) + 1
        everything.append(f"{name}:{seen[name]}")
    left = [point for point in everything if point not in chosen]
    step = max(1, len(left) // max(1, count - len(chosen)))
    return sorted(chosen | set(left[step // 2 :: step][: max(0, count - len(chosen))]))


def main() -> None:
    """Run all passes and print a line for each; exit code 1 on any mismatch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--moments", type=int, default=40)
    parser.add_argument(
        "--at", help="these failpoints instead, as name:k,name:k; first: the first hit of each"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--kind", choices=["evomerge", "cognate", "pipeline", "compression"], default="evomerge"
    )
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--strategy", default="elite-loser")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--server-kills", type=int, default=25)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        server = Postgres(where / "server") if given.database == "postgresql" else None
        bad = _all_passes(where, given, server)
        if server:
            server.stop()
    raise SystemExit(int(bad))


def _all_passes(where: Path, given: argparse.Namespace, server: Postgres | None) -> bool:
    """Run undisturbed, then every pass; return True if anything was wrong."""
    submit = _submitter(where, given)
    home = _home(where, "undisturbed", server)
    submit(home)
    began = time.monotonic()
    process = _start(home, f"trace:{where / 'trace'}")
    process.join()
    seconds = time.monotonic() - began
    expected = _essence(runs.state(home))
    trace = (where / "trace").read_text().split()
    first = [f"{name}:1" for name in sorted(set(trace))]
    at = first if given.at == "first" else (given.at or "").split(",")
    points = at if given.at else _spread(trace, given.points)
    rng = random.Random(0)
    moments = [rng.uniform(0.05, 0.95) * seconds for _ in range(given.moments)]
    print(
        f"{given.kind}, {given.strategy}, {given.database}, undisturbed: {seconds:.1f} s, {len(trace)} "
        f"failpoint hits of {len(set(trace))} kinds, result {str(expected[0])[:12]}"
    )
    bad = False
    for empty in (False, True):
        began = time.monotonic()
        both = [*points, *moments]
        done = _walk_all(where, submit, both, empty, server, given.processes)
        what = (
            f"cache {'emptied' if empty else 'kept'} at restart: {len(points)} failpoints and "
            f"{len(moments)} moments"
        )
        bad |= _told(what, done, expected, began)
    if server:
        began = time.monotonic()
        kills = [rng.uniform(0.05, 0.95) * seconds for _ in range(given.server_kills)]
        other = Postgres(where / "killed")  # it has few databases, so it restarts quickly
        done = _kill_server(where, submit, kills, other)
        other.stop()
        bad |= _told(f"{len(kills)} moments, the server killed", done, expected, began)
    return bad


def _submitter(where: Path, given: argparse.Namespace) -> Submit:
    """Return what submits the run; the toys that a merging run needs are made."""
    if given.kind == "cognate":
        os.environ.setdefault("FORGE_SEGMENT_SECONDS", "0.5")  # several segments a training
        return cognate_runs.submit
    if given.kind == "pipeline":
        return lambda home: pipeline_runs.submit(home, run="r")
    process = _FORK.Process(target=_make, args=(where,))
    process.start()
    process.join()
    toys = Toys(where / "models/base", _sources(where), where / "data")
    if given.kind == "compression":
        items = compression_runs.data(where)
        return lambda home: compression_runs.submit(home, toys.sources[0], items, "r")
    settings = {"generations": given.generations, "strategy": given.strategy}
    return lambda home: runs.submit(home, toys, **settings)


def _told(what: str, done: list[tuple[bool, list]], expected: tuple, began: float) -> bool:
    """Print a pass; return True if anything was wrong with it."""
    kills = sum(killed for killed, _ in done)
    wrong = sum(tuple(found) != expected for _, found in done)
    took = time.monotonic() - began
    print(f"{what}, {kills} SIGKILLs, {wrong} other results, {took:.0f} s", flush=True)
    return wrong > 0 or kills < len(done)


def _make(where: Path) -> None:
    toy_models.family(where / "models")
    toy_models.data(where / "data")


def _sources(where: Path) -> tuple[Path, ...]:
    return tuple(where / "models" / f"source{i}" for i in range(3))


if __name__ == "__main__":
    main()
