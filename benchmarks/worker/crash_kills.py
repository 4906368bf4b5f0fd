"""Kills of one run, in this process's children or on two workers, and what the log says after them."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent_forge.events import EventsError, failpoints
from agent_forge.runs import kinds
from agent_forge.runs.history import audit, repository
from agent_forge.runs.home import Home
from benchmarks.worker.crash_points import Job
from testing.services.cluster import Cluster, children, kill
from testing.services.servers import Postgres
from testing.worlds import runs

#: Submits the run to a home.
Submit = Callable[[Home], object]
#: Digest of the result's weights, and of what luck must not change.
Essence = tuple[str | None, str]

FORK = multiprocessing.get_context("fork")
#: Name of the run, in every home.
RUN = "r"
#: Seconds that a queued run may take after its last kill, and that a lease of its workers lasts.
PATIENCE, LEASE = 600.0, 5.0
#: Runs for a random moment at most, until one is killed at it.
TRIES = 4


@dataclass(frozen=True)
class Outcome:
    """A kill, and how the run ended after it."""

    number: int
    of: str
    #: Where the kill came, in words.
    point: str
    #: False: the run had ended before, or never came to the point.
    killed: bool
    #: Another result or lineage than the undisturbed run's, or none.
    other: bool = True
    #: Events that the log had after the kill and has no more, and errors that the audit finds.
    lost: int = 0
    #: From submit to the end.
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """The outcome on one line."""
        told = "killed" if self.killed else "missed"
        other = "OTHER DIGEST" if self.other else "same digest"
        lost = f"{self.lost} LOST" if self.lost else "nothing lost"
        where = f"{self.number:4} {self.of:8} {self.point:34}"
        return f"{where} {told}, {other}, {lost}, {self.seconds:.1f} s"

    def plain(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        return asdict(self)


def start(home: Home, failpoint: str = "") -> Any:
    """Carry the run on in a child of this process, with a failpoint armed."""
    process = FORK.Process(target=_child, args=(home, failpoint))
    process.start()
    return process


def _child(home: Home, failpoint: str) -> None:
    os.environ["FORGE_THREADS"] = "1"
    if failpoint:
        failpoints.arm(failpoint)
    runs.finish(home, RUN)
    os._exit(0)


def essence(state: Any) -> Essence:
    """Return what a killed run must have in common with the undisturbed one."""
    result = kinds.of(state.kind).models.result(state) if state.completed else None
    return result and result.digest, state.lineage_digest()


def new_home(where: Path, number: int, server: Postgres | None) -> Home:
    """Return a new home, with a database of its own."""
    return Home(where / f"home-{number}", server.new_database() if server else None)


def embedded(
    where: Path, job: Job, submit: Submit, expected: Essence, server: Postgres | None
) -> list[Outcome]:
    """Kill one process at a failpoint or a moment, then carry the run to its end in another.

    A moment after the run's end is tried again, three fifths of it: runs take their time by what else
    the machine does.
    """
    made = _embedded(where, job, submit, expected, server)
    point = job.points[0]
    for _ in range(TRIES - 1):
        if made[0].killed or isinstance(point, str):
            break
        point *= 0.6
        made = _embedded(where, replace(job, points=(point,)), submit, expected, server)
    return made


def _embedded(
    where: Path, job: Job, submit: Submit, expected: Essence, server: Postgres | None
) -> list[Outcome]:
    home, began, point = new_home(where, job.number, server), time.monotonic(), job.points[0]
    submit(home)
    process = start(home, f"kill:{point}" if isinstance(point, str) else "")
    if isinstance(point, float):
        process.join(point)
        process.kill()
    process.join()
    before = hashes(home)
    if job.of == "emptied":
        for cache in (home.artifacts, home.folder / "models"):
            shutil.rmtree(cache, ignore_errors=True)
    start(home).join()
    killed = process.exitcode == -signal.SIGKILL
    told = point if isinstance(point, str) else f"after {point:.2f} s"
    made = Outcome(job.number, job.of, told, killed)
    ended = _judged([made], home, [before], expected, began)
    shutil.rmtree(home.folder)
    return ended


def of_server(
    where: Path, job: Job, submit: Submit, expected: Essence, server: Postgres
) -> list[Outcome]:
    """Kill the database's server at a moment and start it again; the run goes on or is resumed."""
    home, began, moment = new_home(where, job.number, server), time.monotonic(), job.points[0]
    assert isinstance(moment, float)
    submit(home)
    process = start(home)
    process.join(moment)
    alive = process.exitcode is None
    server.kill()
    server.start()
    process.join()
    before = hashes(home)
    start(home).join()
    made = Outcome(job.number, job.of, f"after {moment:.2f} s", alive)
    ended = _judged([made], home, [before], expected, began)
    shutil.rmtree(home.folder)
    return ended


def queued(
    where: Path, job: Job, submit: Submit, expected: Essence, server: Postgres | None
) -> list[Outcome]:
    """Kill either of two workers, or a process of its devices, at each moment; replace dead workers."""
    folder, rng = where / f"cluster-{job.number}", random.Random(f"workers of {job.number}")
    cluster = _cluster(folder, server)
    made: list[Outcome] = []
    kept: list[list[str]] = []
    with closing(cluster):
        _staff(cluster)
        cluster.wait(lambda: sum(d.status == "idle" for d in cluster.devices()) == 2)
        began = time.monotonic()
        submit(cluster.home)
        for pause in job.points:
            assert isinstance(pause, float)
            time.sleep(pause)
            under_way = not runs.state(cluster.home, RUN).ended
            point = _strike(cluster, rng)
            made.append(Outcome(job.number, job.of, point, under_way))
            kept.append(hashes(cluster.home))
            _staff(cluster)
        _carried(cluster)
        ended = _judged(made, cluster.home, kept, expected, began)
    shutil.rmtree(folder)
    return ended


def traced(where: Path, submit: Submit, server: Postgres | None) -> tuple[Essence, set[str]]:
    """Carry a run to its end on two workers; return its essence and the failpoints that it hits."""
    folder, trace = where / "cluster-0", where / "queued-trace"
    with closing(_cluster(folder, server)) as cluster:
        submit(cluster.home)
        _carried(cluster, {"FORGE_FAILPOINTS": f"trace:{trace}"})
        found = essence(runs.state(cluster.home, RUN))
    shutil.rmtree(folder)
    return found, set(trace.read_text().split())


def queued_at(
    where: Path, job: Job, submit: Submit, expected: Essence, server: Postgres | None
) -> list[Outcome]:
    """Kill the first that passes each failpoint, of two workers' and their devices' processes."""
    folder, points = where / f"cluster-{job.number}", where / f"points-{job.number}"
    points.mkdir()
    for point in job.points:
        (points / str(point)).touch()
    kept: dict[str, list[str]] = {}
    with closing(_cluster(folder, server)) as cluster:
        began = time.monotonic()

        def note() -> None:
            """Keep what the log has after each kill that came since the last look."""
            for point in job.points:
                if str(point) not in kept and not (points / str(point)).exists():
                    kept[str(point)] = hashes(cluster.home)

        submit(cluster.home)
        _carried(cluster, {"FORGE_FAILPOINTS": f"each:{points}"}, note)
        note()
        told = [str(point) for point in job.points]
        made = [Outcome(job.number, job.of, point, point in kept) for point in told]
        had = [kept.get(point, []) for point in told]
        ended = _judged(made, cluster.home, had, expected, began)
    shutil.rmtree(folder)
    return ended


def _cluster(folder: Path, server: Postgres | None) -> Cluster:
    return Cluster(folder, server.new_database() if server else None, LEASE)


def _staff(cluster: Cluster, env: Mapping[str, str] = MappingProxyType({})) -> None:
    """Start workers with these variables of the environment, so that two are alive."""
    cluster.workers[:] = [worker for worker in cluster.workers if worker.poll() is None]
    while len(cluster.workers) < 2:
        cluster.worker(**env)


def _strike(cluster: Cluster, rng: random.Random) -> str:
    """Kill a worker, or one of its processes; return in words what was killed and what it did."""
    place = rng.randrange(2)
    worker, processes = cluster.workers[place], children(cluster.workers[place])
    busy = ""
    with suppress(EventsError):
        busy = ", ".join(sorted({d.run or "" for d in cluster.devices() if d.status == "busy"}))
    if processes and rng.random() < 0.3:
        with suppress(ProcessLookupError):
            os.kill(rng.choice(processes), signal.SIGKILL)
        return f"process of worker {place + 1}; at {busy or 'nothing'}"
    kill(worker)
    return f"worker {place + 1}; at {busy or 'nothing'}"


def _carried(
    cluster: Cluster,
    env: Mapping[str, str] = MappingProxyType({}),
    note: Callable[[], None] = lambda: None,
) -> None:
    """Wait for the run's end; after three deaths of a task it is retried, as a user would."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        note()
        state: Any = runs.state(cluster.home, RUN)
        if state.failed and "quarantined" in state.failed.reason:
            cluster.forge("retry", RUN)
        elif state.ended:
            return
        _staff(cluster, env)
        time.sleep(0.5)


def hashes(home: Home) -> list[str]:
    """Return the hash of every event of the log, in order."""
    with closing(home.open_store()) as store:
        return [row.hash for name in store.names() for row in store.read(name)]


def _judged(
    made: list[Outcome], home: Home, kept: list[list[str]], expected: Essence, began: float
) -> list[Outcome]:
    """Return the outcomes with what the log says in the end.

    `kept`: hashes of the events that the log had after each kill.
    """
    seconds, whole = time.monotonic() - began, set(hashes(home))
    other = essence(runs.state(home, RUN)) != expected
    wrong = errors(home)
    return [
        replace(one, other=other, seconds=seconds, lost=len(set(had) - whole) + wrong)
        for one, had in zip(made, kept, strict=True)
    ]


def errors(home: Home, of: str = RUN) -> int:
    """Return how many errors the audit finds in the run and the runs that it delegated."""
    found = 0
    with closing(home.open_store()) as store:
        for name in store.names():
            run = name.partition("/")[2]
            if run.partition(".")[0] == of:
                rows = list(repository.history(store, run))
                found += sum(one.level == "error" for one in audit.audit(rows))
    return found
