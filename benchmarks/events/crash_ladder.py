"""Crash tests of the log: crash it at every kind of point, recover, and check what was promised.

    python -m benchmarks.events.crash_ladder [--sqlite 1000] [--postgres 50] [--seed 0]

The numbers are the most points of one rung; a rung with fewer points is tested completely. Rungs:

    failpoints     a client is killed by SIGKILL at each failpoint of the log
    system calls   a client on SQLite is killed right before each write, sync, unlink and truncation
    power cuts     unsynced writes are lost in any combination; and again during recovery
    moments        a client of PostgreSQL is killed at random moments
    server kills   PostgreSQL is killed at random moments under three writers and a follower
    any order      submits, work, crashes, lost, late, repeated messages in any order; and a model
    broken places  full or read-only disks, quotas, cut or damaged files: clear error, then recovery

After each crash the log must open and be sound: acknowledged events are there, no append is there
in part, and the chains are whole. The same appends made again must leave the same log as an
undisturbed client. SQLite is tested in both journal modes. Exit code 1 on any mismatch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from agent_forge.events import failpoints
from agent_forge.events.databases import sqlite
from agent_forge.events.databases.postgres import open_store as open_postgres
from agent_forge.events.databases.sqlite import open_store
from testing.crowd import Crowd
from testing.power_loss import capture, judge_cut, judge_two_cuts, places, record
from testing.services.servers import Postgres as Server
from tests.acceptance.events.test_kill_at_syscalls import (
    MODES,
    Batch,
    Verdict,
    Work,
    all_points,
    client,
    count,
    forked,
    kill_at,
    perform,
    reopened,
    untraceable,
    workload,
)
from tests.integration.events.test_store_machine import SETTINGS, Machine

_FORK = multiprocessing.get_context("fork")
WRITERS = 3
ROOT = Path(__file__).parents[2]
#: JUnit's names of results of tests that did not pass.
BAD = ("failure", "error")
#: Tests of the failures that a log, an artifact and an export must survive.
BROKEN = (
    "tests/acceptance/events/test_log_failures.py",
    "tests/integration/events/test_sqlite_store.py::test_a_damaged_log_is_reported_by_every_operation",
    "tests/integration/worker/exports/test_export.py::test_a_full_disk_leaves_nothing_half_written",
    "tests/acceptance/worker/test_whole_runs.py::test_a_damaged_cache_file_is_noticed_and_rebuilt",
)


class Rung(NamedTuple):
    """A line of the table, with a verdict for each point."""

    name: str
    database: str
    verdicts: list[Verdict]


def climb(name: str, database: str, walk: Callable[[], list[Verdict]]) -> Rung:
    """Test all points of a rung and print its line."""
    began = time.monotonic()
    verdicts = walk()
    wrong = sum(bool(verdict.wrong) for verdict in verdicts)
    lost = sum(verdict.lost for verdict in verdicts)
    cells = f"{name:16} {database:15} {len(verdicts):7} {wrong:11} {lost:12}"
    print(f"{cells} {time.monotonic() - began:8.0f}", flush=True)
    return Rung(name, database, verdicts)


def share_out(points: Sequence[Any], work: Callable[[Any, Path], Verdict | None]) -> list[Verdict]:
    """Run `work` at each point, in as many processes as there are cores.

    A point for which `work` gives None does not count. The processes are forked from this one,
    which has imported everything.
    """
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)

        def walk(share: int) -> None:
            found = []
            for number, point in enumerate(points[share::cores]):
                folder = where / f"{share}-{number}"
                folder.mkdir()
                found.append(work(point, folder))
                shutil.rmtree(folder)
            (where / f"{share}.json").write_text(json.dumps([v for v in found if v is not None]))

        shares = [_FORK.Process(target=walk, args=(share,)) for share in range(cores)]
        for process in shares:
            process.start()
        for process in shares:
            process.join()
        answers = [json.loads((where / f"{share}.json").read_text()) for share in range(cores)]
    return [Verdict(*row) for answer in answers for row in answer]


def some(points: Sequence[Any], most: int, seed: int) -> list[Any]:
    """Return a random sample of at most `most` of the points."""
    return random.Random(seed).sample(points, min(most, len(points)))


def crash(work: Work, failpoint: str = "", moment: float | None = None) -> tuple[int, int]:
    """Do `work` in a process that is killed; return its exit code and its acknowledged appends."""

    def kill(child: int) -> None:
        if moment is not None:
            time.sleep(moment)
            os.kill(child, signal.SIGKILL)

    return forked(work, lambda: failpoints.arm(failpoint), kill)


def hits(work: Work) -> int:
    """Return how many failpoints an undisturbed client passes."""
    with tempfile.TemporaryDirectory() as name:
        trace = Path(name) / "trace"
        crash(work, f"trace:{trace}")
        return len(trace.read_text().split())


def killed(code: int, where: str, verdict: Verdict) -> Verdict:
    """Add a mismatch to the verdict if the client was not killed at the point."""
    alive = [] if code == -signal.SIGKILL else [f"{where}: the client ended with {code}"]
    return Verdict(verdict.lost, alive + [f"{where}: {what}" for what in verdict.wrong])


# SQLite


def sqlite_rungs(most: int, seed: int) -> list[Rung]:
    """Test all SQLite rungs in both journal modes, also in the one that is not used here."""
    rungs = []
    for mode in MODES:
        sqlite.journal_mode = lambda *_, mode=mode: mode
        where = f"SQLite, {mode}"
        rungs += [
            climb("failpoints", where, lambda: sqlite_failpoints(most, seed)),
            climb("system calls", where, lambda: system_calls(most, seed)),
            climb("power cuts", where, lambda: power_cuts(most, seed)),
            climb("power cuts, two", where, lambda: power_cuts(most // 4, seed, twice=True)),
        ]
    return rungs


def sqlite_failpoints(most: int, seed: int) -> list[Verdict]:
    """Kill a client on SQLite at every failpoint that an undisturbed client hits."""
    batches = workload()
    with tempfile.TemporaryDirectory() as name:
        number = hits(client(Path(name) / "log.db", batches))

    def work(point: int, folder: Path) -> Verdict:
        place = folder / "log.db"
        code, said = crash(client(place, batches), f"kill:{point}")
        verdict = reopened(lambda: open_store(place), said, batches)
        return killed(code, f"failpoint {point}", verdict)

    return share_out(some(range(1, number + 1), most, seed), work)


def system_calls(most: int, seed: int) -> list[Verdict]:
    """Kill a client at every system call of an undisturbed client that changes or syncs a file."""
    if why := untraceable():
        print(f"LEFT OUT, system calls: {why}")
        return []
    batches = workload()
    with tempfile.TemporaryDirectory() as name:
        counts = count(Path(name) / "undisturbed", batches)

    def work(point: str, folder: Path) -> Verdict:
        found = kill_at(point, folder / "log", batches)
        return killed(-signal.SIGKILL if found.killed else 0, point, found.verdict)

    return share_out(some(all_points(counts), most, seed), work)


def power_cuts(most: int, seed: int, twice: bool = False) -> list[Verdict]:
    """Judge power cuts of one recorded client, at places that a seed chooses."""
    batches = workload()
    with tempfile.TemporaryDirectory() as name:
        script = capture(Path(name) / "log.db", batches)
        recording = record(script, Path(name) / "recorded" / "log.db")
    where = places(recording)

    def work(point: int, folder: Path) -> Verdict:
        if twice:
            found = judge_two_cuts(script, recording, point, folder, batches)
        else:
            cut = random.Random(f"{seed}/{point}").choice(where)
            found = judge_cut(recording, cut, point, folder / "cut" / "log.db", batches)
        return Verdict(found.lost, [f"cut with seed {point}: {what}" for what in found.wrong])

    return share_out(range(seed, seed + most), work)


# PostgreSQL


def postgres_rungs(most: int, seed: int) -> list[Rung]:
    """Test each rung on a server of its own: with many databases, recovery takes seconds."""
    return [
        climb(name, "PostgreSQL", lambda walk=walk: on_a_server(walk, most, seed))
        for name, walk in (
            ("failpoints", postgres_failpoints),
            ("moments", moments),
            ("server kills", server_kills),
        )
    ]


def on_a_server(walk: Callable[..., list[Verdict]], most: int, seed: int) -> list[Verdict]:
    """Test a rung on a new server, which is stopped afterwards."""
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name) / "postgres")
        try:
            return walk(server, most, seed)
        finally:
            server.stop()


def clients(
    server: Server, batches: Sequence[Batch], points: Sequence[tuple[str, float | None]]
) -> list[Verdict]:
    """Kill a client at each (failpoint, moment), each with a database of its own."""
    urls = [server.new_database() for _ in points]

    def work(point: tuple[str, str, float | None], _folder: Path) -> Verdict | None:
        url, failpoint, moment = point
        code, said = crash(lambda s: perform(open_postgres(url), batches, s), failpoint, moment)
        if moment is not None and code == 0:
            return None
        where = failpoint or f"after {moment} s"
        return killed(code, where, reopened(lambda: open_postgres(url), said, batches))

    return share_out([(url, *point) for url, point in zip(urls, points, strict=True)], work)


def postgres_failpoints(server: Server, most: int, seed: int) -> list[Verdict]:
    """Kill a client of PostgreSQL at every failpoint that an undisturbed client hits."""
    batches, url = workload(), server.new_database()
    number = hits(lambda said: perform(open_postgres(url), batches, said))
    chosen = some(range(1, number + 1), most, seed)
    return clients(server, batches, [(f"kill:{n}", None) for n in chosen])


def moments(server: Server, most: int, seed: int) -> list[Verdict]:
    """Kill clients at random moments; a client that had ended before its moment does not count."""
    batches, url = workload(), server.new_database()
    began = time.monotonic()
    crash(lambda said: perform(open_postgres(url), batches, said))
    seconds = time.monotonic() - began
    rng = random.Random(seed)
    return clients(server, batches, [("", rng.uniform(0.02, 0.6) * seconds) for _ in range(most)])


def server_kills(server: Server, most: int, seed: int) -> list[Verdict]:
    """Kill the server repeatedly under one crowd of writers; all kills are judged together."""
    rng = random.Random(seed)
    url = server.new_database()
    open_postgres(url).close()
    crowd = Crowd(url, WRITERS)
    for _ in range(most):
        crowd.wait(rng.randint(1, 12))
        time.sleep(rng.uniform(0, 0.02))
        server.kill()
        server.start()
    crowd.wait(3)
    return [crowd.judge(), *[Verdict(0, [])] * (most - 1)]


# Random histories, broken disks and files


def any_order(most: int, seed: int) -> list[Verdict]:
    """Test histories of submits, work, crashes and lost messages that Hypothesis generates."""
    with tempfile.TemporaryDirectory() as name:
        Machine.prepare(Path(name) / "empty.db")
        tried = itertools.count()

        class Counted(Machine):
            def __init__(self) -> None:
                super().__init__()
                next(tried)

        wanted = settings(SETTINGS, max_examples=most, database=None, derandomize=seed == 0)
        try:
            run_state_machine_as_test(Counted, settings=wanted)
        except AssertionError as error:
            return [Verdict(0, []) for _ in range(next(tried) - 1)] + [Verdict(0, [repr(error)])]
    return [Verdict(0, []) for _ in range(next(tried))]


def broken_places() -> list[Verdict]:
    """Run the tests of full or read-only disks, and of cut or damaged files."""
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *BROKEN]
        subprocess.run([*command, f"--junitxml={report}"], cwd=ROOT, capture_output=True)
        cases = list(ElementTree.parse(report).iter("testcase"))
    for case in cases:
        for skipped in case.iter("skipped"):
            print(f"LEFT OUT, {case.get('name')}: {skipped.get('message')}")
    return [
        Verdict(0, [f"{case.get('name')}: {e.get('message')}" for e in case if e.tag in BAD])
        for case in cases
        if case.find("skipped") is None
    ]


def main() -> None:
    """Test all rungs; exit code 1 on any mismatch."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--sqlite", 1000), ("--postgres", 50), ("--seed", 0)):
        parser.add_argument(name, type=int, default=default)
    given = parser.parse_args()
    print("rung             database         points  mismatches  events lost  seconds")
    rungs = sqlite_rungs(given.sqlite, given.seed) if given.sqlite else []
    rungs += postgres_rungs(given.postgres, given.seed) if given.postgres else []
    if given.sqlite:
        rungs.append(climb("any order", "SQLite", lambda: any_order(given.sqlite, given.seed)))
    rungs.append(climb("broken places", "both", broken_places))
    for database in ("SQLite", "PostgreSQL"):
        points = sum(len(rung.verdicts) for rung in rungs if rung.database.startswith(database))
        print(f"{database}: {points} points")
    bad = [(rung, what) for rung in rungs for v in rung.verdicts for what in v.wrong]
    for rung, what in bad[:20]:
        print(f"{rung.database}, {rung.name}: {what}")
    raise SystemExit(int(bool(bad)))


if __name__ == "__main__":
    main()
