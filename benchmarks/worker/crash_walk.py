"""Crash tests of a run: kill it at every kind of point, resume it, compare with an undisturbed run.

    python -m benchmarks.worker.crash_walk [--points 60] [--moments 40] [--generations 8]
    python -m benchmarks.worker.crash_walk --strategy auto …
    python -m benchmarks.worker.crash_walk --kind cognate …          a training in miniature
    python -m benchmarks.worker.crash_walk --kind pipeline …         that and a merging run in a row
    python -m benchmarks.worker.crash_walk --kind compression …      codecs and mixtures of a toy model
    python -m benchmarks.worker.crash_walk --database postgresql [--server-kills 25] …
    python -m benchmarks.worker.crash_walk --queued-moments 40 …     also on two workers with a Redis
    python -m benchmarks.worker.crash_walk --queued-points …         the same at every failpoint
    python -m benchmarks.worker.crash_walk --processes 16 [--shard 1/4] [--seconds 500] …

Passes: `kept`, the cache survives. `emptied`, it is emptied at each restart, so that everything is
built and measured again. `queued`, the run is in a queue, and either of its two workers, or one of
their processes, is killed at random moments, five a run, or where the first of them passes a
failpoint, five failpoints a run. `server`, on PostgreSQL: the server is killed,
with everything it started, at random moments, and started again.

Each point is a real SIGKILL of a real process during real builds and evaluations. Processes that carry
a run without a queue are forked from one that has imported torch but never used it, which saves the
seconds of the import and changes nothing else. Each run has a folder, a log and a cache of its own;
`--processes` of them go on side by side. A shard takes every Nth job of the whole walk.

It prints a line for each kill, a line for each pass and one for all. Exit code 1 if a digest is
another, an event that was acknowledged is gone, an audit finds an error, or no process was killed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.worker import crash_kills, crash_points
from benchmarks.worker.crash_kills import FORK, Essence, Outcome, Submit
from benchmarks.worker.crash_points import Job
from testing.miniatures import cognate_runs, compression_runs, pipeline_runs
from testing.models import toy_models
from testing.models.toys import Toys
from testing.services.servers import Postgres
from testing.worlds import runs

PASSES = ("kept", "emptied", "queued", "server")


def main() -> None:
    """Run all passes; exit code 1 on any mismatch."""
    given = _parser().parse_args()
    if given.database != "postgresql" and "server" in given.passes:
        given.passes.remove("server")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        where = Path(folder)
        server = Postgres(where / "server") if given.database == "postgresql" else None
        try:
            good = _walk(where, given, server)
        finally:
            if server:
                server.stop()
    raise SystemExit(int(not good))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--kind", choices=["evomerge", "cognate", "pipeline", "compression"], default="evomerge")
    add("--points", type=int, default=60, help="hits of failpoints, embedded; 0: none")
    add("--at", help="instead of --points: name:k,name:k; or `first`, `ends` (first, and late) of each")
    add("--moments", type=int, default=40, help="random moments, embedded, of each pass")
    add("--queued-moments", type=int, default=0, help="random moments, with two queued workers")
    add("--queued-points", action="store_true", help="every failpoint, with two queued workers")
    add("--passes", nargs="+", choices=PASSES, default=list(PASSES))
    add("--processes", type=int, default=os.cpu_count() or 1, help="runs side by side")
    add("--shard", type=crash_points.shard, default=(1, 1), metavar="K/N", help="a part of the walk")
    add("--seconds", type=float, default=float("inf"), help="begin no run after this time")
    add("--folder", help="where runs have their folders, instead of the system's temporary folder")
    add("--generations", type=int, default=8)
    add("--strategy", default="elite-loser")
    add("--database", choices=["sqlite", "postgresql"], default="sqlite")
    add("--server-kills", type=int, default=25)
    return parser


def _walk(where: Path, given: argparse.Namespace, server: Postgres | None) -> bool:
    """Run undisturbed, then every job of the shard; return True if nothing was wrong."""
    began, submit = time.monotonic(), _submitter(where, given)
    home = crash_kills.new_home(where, 0, server)
    submit(home)
    first = time.monotonic()
    crash_kills.start(home, f"trace:{where / 'trace'}").join()
    seconds, expected = time.monotonic() - first, crash_kills.essence(runs.state(home))
    trace = (where / "trace").read_text().split()
    queued: set[str] = set()
    if given.queued_points and "queued" in given.passes:
        ended, queued = crash_kills.traced(where, submit, server)
        print(
            f"queued, undisturbed: {len(queued)} kinds of failpoints, {ended == expected}", flush=True
        )
        if ended != expected:
            return False
    whole = crash_points.jobs(given, trace, queued, seconds)
    jobs = crash_points.mine(whole, given.shard)
    print(
        f"{given.kind}, {given.database}, undisturbed: {seconds:.1f} s, {len(trace)} failpoint hits of "
        f"{len(set(trace))} kinds, result {str(expected[0])[:12]}; {len(jobs)} of {len(whole)} jobs, "
        f"{given.processes} at a time",
        flush=True,
    )
    if expected[0] is None:
        print("the undisturbed run has no result")
        return False
    deadline = began + given.seconds
    done, whole = _side_by_side(where, jobs, submit, expected, server, given.processes, deadline)
    asked = sum(len(job.points) for job in jobs)
    return _told(given.kind, done, asked, time.monotonic() - began) and whole


def _side_by_side(
    where: Path,
    jobs: Sequence[Job],
    submit: Submit,
    expected: Essence,
    server: Postgres | None,
    processes: int,
    deadline: float,
) -> tuple[list[Outcome], bool]:
    """Do the jobs; return their outcomes, and False if a process of this walk has failed.

    Each process takes the next job when it has done one. Kills of the server are apart, on a server of
    their own, after the others.
    """
    mine = [job for job in jobs if job.of != "server"]
    of_server = [job for job in jobs if job.of == "server"]
    taken = FORK.Value("i", 0)

    def work(out: Path) -> None:
        while time.monotonic() < deadline:
            with taken.get_lock():
                place, taken.value = taken.value, taken.value + 1
            if place >= len(mine):
                return
            _note(out, _way(mine[place])(where, mine[place], submit, expected, server))

    files = [where / f"outcomes-{place}.jsonl" for place in range(processes)]
    workers = [FORK.Process(target=work, args=(file,)) for file in files]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if of_server:
        files.append(where / "outcomes-server.jsonl")
        other = Postgres(where / "killed")  # it has few databases, so it restarts quickly
        for job in of_server:
            if time.monotonic() < deadline:
                _note(files[-1], crash_kills.of_server(where, job, submit, expected, other))
        other.stop()
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    return [Outcome(**json.loads(line)) for line in lines], not any(w.exitcode for w in workers)


def _way(job: Job) -> Callable[..., list[Outcome]]:
    """Return what does a job."""
    if job.of != "queued":
        return crash_kills.embedded
    return crash_kills.queued_at if isinstance(job.points[0], str) else crash_kills.queued


def _note(out: Path, done: Sequence[Outcome]) -> None:
    """Print outcomes and keep them in a file of this process."""
    with out.open("a") as file:
        for outcome in done:
            print(outcome.line, flush=True)
            file.write(json.dumps(outcome.plain()) + "\n")


def _told(kind: str, done: Sequence[Outcome], asked: int, took: float) -> bool:
    """Print the sums of each pass and of all; return True if nothing was wrong."""
    for of in PASSES:
        if some := [one for one in done if one.of == of]:
            print(f"{of}: {_sums(some)}")
    print(f"{kind}, in all: {_sums(done)}, {asked - len(done)} left out, {took:.0f} s")
    return any(one.killed for one in done) and not any(one.other or one.lost for one in done)


def _sums(done: Sequence[Outcome]) -> str:
    kills = sum(one.killed for one in done)
    other, lost = sum(one.other for one in done), sum(one.lost for one in done)
    return f"{kills} kills, {len(done) - kills} missed, {other} other digests, {lost} lost"


def _submitter(where: Path, given: argparse.Namespace) -> Submit:
    """Return what submits the run; the toys that a merging run needs are made."""
    if given.kind in ("cognate", "pipeline"):
        os.environ.setdefault("FORGE_SEGMENT_STEPS", "40")  # several segments a training
    if given.kind == "cognate":
        return cognate_runs.submit
    if given.kind == "pipeline":
        return lambda home: pipeline_runs.submit(home, run="r")
    process = FORK.Process(target=_make, args=(where,))
    process.start()
    process.join()
    toys = Toys(where / "models/base", _sources(where), where / "data")
    if given.kind == "compression":
        items = compression_runs.data(where)
        return lambda home: compression_runs.submit(home, toys.sources[0], items, "r")
    settings = {"generations": given.generations, "strategy": given.strategy}
    return lambda home: runs.submit(home, toys, **settings)


def _make(where: Path) -> None:
    toy_models.family(where / "models")
    toy_models.data(where / "data")


def _sources(where: Path) -> tuple[Path, ...]:
    return tuple(where / "models" / f"source{i}" for i in range(3))


if __name__ == "__main__":
    main()
