"""Crash a log at every kind of place, go on with it, and compare it with what was promised.

    python -m benchmarks.crash_ladder [--sqlite 1000] [--postgres 50] [--seed 0]

The numbers are the most points of one rung; a rung that has fewer is walked whole. Rungs:

    failpoints     a client is killed by SIGKILL at each failpoint of the log
    system calls   a client on SQLite is killed right before each write, sync, unlink and truncation
    power cuts     what was not synced is lost in any combination; and once more while recovering
    moments        a client of PostgreSQL is killed at random moments
    server kills   PostgreSQL is killed at random moments under three writers and a follower

After each: the log opens and is sound, what was acknowledged is there, nothing is there by half, the
chains are whole, and the same appends made again leave what an undisturbed client would have left.
SQLite is tried in both journal modes. Exit code 1 on any mismatch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import events.sqlite
from events import Envelope, EventStore, New, StoreUnavailableError, failpoints
from events.postgres import Postgres
from events.postgres import open_store as open_postgres
from events.sqlite import open_store
from tests.events.power_loss import capture, judge_cut, judge_two_cuts, places, record
from tests.events.test_kill_at_syscalls import (
    MODES,
    Batch,
    Noted,
    Verdict,
    Work,
    all_points,
    breaks,
    client,
    count,
    forked,
    kill_at,
    perform,
    reopened,
    untraceable,
    workload,
)
from tests.servers import Postgres as Server

_FORK = multiprocessing.get_context("fork")
WRITERS = 3
#: Seconds that somebody waits who was refused: a server that recovers must not be kept from it.
PAUSE = 0.05


class Rung(NamedTuple):
    """A line of the table; a verdict for each point."""

    name: str
    database: str
    verdicts: list[Verdict]


def climb(name: str, database: str, walk: Callable[[], list[Verdict]]) -> Rung:
    """Walk a rung and print its line."""
    began = time.monotonic()
    verdicts = walk()
    wrong = sum(bool(verdict.wrong) for verdict in verdicts)
    lost = sum(verdict.lost for verdict in verdicts)
    cells = f"{name:16} {database:15} {len(verdicts):7} {wrong:11} {lost:12}"
    print(f"{cells} {time.monotonic() - began:8.0f}", flush=True)
    return Rung(name, database, verdicts)


def share_out(points: Sequence[Any], work: Callable[[Any, Path], Verdict | None]) -> list[Verdict]:
    """`work` at each point, in as many processes as there are cores. None: the point does not count.

    The processes are forked from this one, which has imported everything.
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
    """At most so many of the points."""
    return random.Random(seed).sample(points, min(most, len(points)))


def crash(work: Work, failpoint: str = "", moment: float | None = None) -> tuple[int, int]:
    """Do `work` in a process that is killed: its exit code, and the appends that it acknowledged."""

    def kill(child: int) -> None:
        if moment is not None:
            time.sleep(moment)
            os.kill(child, signal.SIGKILL)

    return forked(work, lambda: failpoints.arm(failpoint), kill)


def hits(work: Work) -> int:
    """How many failpoints an undisturbed client passes."""
    with tempfile.TemporaryDirectory() as name:
        trace = Path(name) / "trace"
        crash(work, f"trace:{trace}")
        return len(trace.read_text().split())


def killed(code: int, where: str, verdict: Verdict) -> Verdict:
    """A point at which nobody died is a mismatch, too."""
    alive = [] if code == -signal.SIGKILL else [f"{where}: the client ended with {code}"]
    return Verdict(verdict.lost, alive + [f"{where}: {what}" for what in verdict.wrong])


# SQLite


def sqlite_rungs(most: int, seed: int) -> list[Rung]:
    """Both journal modes, whatever this library would be given."""
    rungs = []
    for mode in MODES:
        events.sqlite.journal_mode = lambda *_, mode=mode: mode
        where = f"SQLite, {mode}"
        rungs += [
            climb("failpoints", where, lambda: sqlite_failpoints(most, seed)),
            climb("system calls", where, lambda: system_calls(most, seed)),
            climb("power cuts", where, lambda: power_cuts(most, seed)),
            climb("power cuts, two", where, lambda: power_cuts(most // 4, seed, twice=True)),
        ]
    return rungs


def sqlite_failpoints(most: int, seed: int) -> list[Verdict]:
    """Every hit of an undisturbed client."""
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
    """Every call of an undisturbed client that changes a file or syncs it."""
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
    """Cuts of one recorded client, at places that a seed chooses."""
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
    """Each on a server of its own: one with many databases takes seconds to recover."""
    return [
        climb(name, "PostgreSQL", lambda walk=walk: on_a_server(walk, most, seed))
        for name, walk in (
            ("failpoints", postgres_failpoints),
            ("moments", moments),
            ("server kills", server_kills),
        )
    ]


def on_a_server(walk: Callable[..., list[Verdict]], most: int, seed: int) -> list[Verdict]:
    """Walk a rung; its server is gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name) / "postgres")
        try:
            return walk(server, most, seed)
        finally:
            server.stop()


def clients(
    server: Server, batches: Sequence[Batch], points: Sequence[tuple[str, float | None]]
) -> list[Verdict]:
    """A client for each (failpoint, moment), each with a database of its own."""
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
    """Every hit of an undisturbed client."""
    batches, url = workload(), server.new_database()
    number = hits(lambda said: perform(open_postgres(url), batches, said))
    chosen = some(range(1, number + 1), most, seed)
    return clients(server, batches, [(f"kill:{n}", None) for n in chosen])


def moments(server: Server, most: int, seed: int) -> list[Verdict]:
    """Moments of an undisturbed client's time; those that came too late do not count."""
    batches, url = workload(), server.new_database()
    began = time.monotonic()
    crash(lambda said: perform(open_postgres(url), batches, said))
    seconds = time.monotonic() - began
    rng = random.Random(seed)
    return clients(server, batches, [("", rng.uniform(0.02, 0.6) * seconds) for _ in range(most)])


def server_kills(server: Server, most: int, seed: int) -> list[Verdict]:
    """Kills under one crowd, which are judged together."""
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


class Crowd:
    """Writers and a follower that go on through whatever the server does; threads of this process.

    Each writer appends to a stream of its own and to one that they share, and notes what was
    acknowledged; one that is told that the log is not available makes the same append again.
    """

    def __init__(self, url: str, writers: int) -> None:
        self.url = url
        self.acknowledged: list[list[str]] = [[] for _ in range(writers)]
        self.followed: list[Envelope] = []
        self.errors: list[BaseException] = []
        self._over, self._written = threading.Event(), threading.Event()
        self._writers = [
            threading.Thread(target=self._safely, args=(self._write, n), daemon=True)
            for n in range(writers)
        ]
        self._follower = threading.Thread(target=self._safely, args=(self._follow,), daemon=True)
        for thread in (*self._writers, self._follower):
            thread.start()

    def _safely(self, work: Callable[..., None], *arguments: int) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.errors.append(error)

    def _write(self, writer: int) -> None:
        store = EventStore(Postgres(self.url))
        version = 0
        while not self._over.is_set():
            mine = [f"{writer}/{version + i}" for i in range(1 + version % 3)]
            for stream, expected, names in (
                (f"own-{writer}", version, mine),
                ("shared", None, [f"{name}/shared" for name in mine]),
            ):
                batch = [New(Noted(value=name), name) for name in names]
                while not self._appended(store, stream, expected, batch):
                    pass
                self.acknowledged[writer] += names
            version += len(mine)
        store.close()

    def _appended(self, store: EventStore, stream: str, *append: Any) -> bool:
        with contextlib.suppress(StoreUnavailableError):
            store.append(stream, *append)
            return True
        time.sleep(PAUSE)
        return False

    def _follow(self) -> None:
        store = EventStore(Postgres(self.url))
        while True:
            last = self._written.is_set()
            try:
                rows = store.read_all(self.followed[-1].position if self.followed else 0)
            except StoreUnavailableError:
                time.sleep(PAUSE)
                continue
            self.followed += rows
            if last and not rows:
                break
        store.close()

    def wait(self, appends: int) -> None:
        """Until every writer has had so many more events acknowledged."""
        for one in self.acknowledged:
            goal = len(one) + appends
            while len(one) < goal and not self.errors:
                time.sleep(0.001)

    def judge(self) -> Verdict:
        """End it: how many acknowledged events are lost, and everything that is wrong."""
        self._over.set()
        for thread in self._writers:
            thread.join()
        self._written.set()
        self._follower.join()
        with contextlib.closing(open_postgres(self.url)) as store:
            rows = store.read_all(limit=10**7)
        here = [row.key for row in rows]
        promised = [name for one in self.acknowledged for name in one]
        lost = len(set(promised) - set(here))
        wrong = [repr(error) for error in self.errors]
        wrong += [f"{lost} acknowledged events are lost"] if lost else []
        wrong += ["a key is there twice"] if len(set(here)) < len(here) else []
        wrong += ["rows that nobody was told of"] if set(here) != set(promised) else []
        wrong += ["the follower saw something else"] if self.followed != rows else []
        for number, one in enumerate(self.acknowledged):
            mine = [key for key in here if key.partition("/")[0] == str(number)]
            wrong += [f"writer {number}: another order"] if mine != one else []
        return Verdict(lost, wrong + breaks(rows))


def main() -> None:
    """Walk all rungs; exit code 1 on any mismatch."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--sqlite", 1000), ("--postgres", 50), ("--seed", 0)):
        parser.add_argument(name, type=int, default=default)
    given = parser.parse_args()
    print("rung             database         points  mismatches  events lost  seconds")
    rungs = sqlite_rungs(given.sqlite, given.seed) if given.sqlite else []
    rungs += postgres_rungs(given.postgres, given.seed) if given.postgres else []
    for database in ("SQLite", "PostgreSQL"):
        points = sum(len(rung.verdicts) for rung in rungs if rung.database.startswith(database))
        print(f"{database}: {points} points")
    bad = [(rung, what) for rung in rungs for v in rung.verdicts for what in v.wrong]
    for rung, what in bad[:20]:
        print(f"{rung.database}, {rung.name}: {what}")
    raise SystemExit(int(bool(bad)))


if __name__ == "__main__":
    main()
