"""Fault injection: runs on a cluster under random faults, compared with the same undisturbed runs.

    python -m benchmarks.worker.chaos [--database postgresql] [--faults 60] [--seed 0]
    python -m benchmarks.worker.chaos --of speedrun …        all phases of examples/speedrun.toml, small

Faults: workers are killed or stopped past their leases, and their processes are killed. Redis is
killed, emptied and sent nonsense. The database server is killed. The tables of leases and devices
are emptied, one worker's clock is an hour ahead, and the cache folder is deleted. For root, who may
mount a small disk for it, the home's disk fills up. Dead workers and servers are started again, and
the disk is emptied; nothing else is repaired.

After each run, result and lineage digest must be those of the same run in one quiet process. The
audit must find no error in it or in its phases, no key may occur twice, and every event that the log
had after a fault must be there. A killed process counts as a death; a run that was quarantined for
three deaths is retried as a user would. Exit code 1 on any mismatch.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DatabaseError

from agent_forge.events import EventsError
from agent_forge.runs.history.repository import history
from agent_forge.runs.home import Home
from agent_forge.worker.queue.celery_wakeup import make_app, queue_of
from agent_forge.worker.queue.device_table import DEVICES
from agent_forge.worker.queue.leases import LEASES
from benchmarks.worker import crash_kills
from testing.miniatures import pipeline_runs, speedruns
from testing.models import toy_models
from testing.models.toys import Toys
from testing.services.cluster import Cluster, children, kill
from testing.services.servers import Postgres
from testing.worlds import runs

WORKERS, LEASE = 2, 2.0
#: Bytes of the disk that fills up, as an option of `mount`.
DISK = "size=1g"


@dataclass(frozen=True)
class Subject:
    """A run that faults happen to."""

    #: Submits it to a home, under a name, with a seed.
    submit: Callable[[Home, str, int], object]
    #: How many seeds there are, from 0.
    seeds: int
    #: Most seconds from one fault to the next.
    pause: float


def subject(of: str, folder: Path) -> Subject:
    """Return the merging runs of three generations, or the speedrun in miniature."""
    if of == "speedrun":
        phases = speedruns.phases()
        return Subject(lambda home, run, _: pipeline_runs.submit(home, phases, run), 1, 20)
    base, sources = toy_models.family(folder / "models")
    toys = Toys(base, tuple(sources), toy_models.data(folder / "data"))
    return Subject(lambda home, run, seed: runs.submit(home, toys, run, seed=seed), 3, 6)


class Chaos:
    """A cluster, and the faults that happen to it."""

    def __init__(self, folder: Path, database: str, rng: random.Random) -> None:
        self.server = Postgres(folder / "postgres") if database == "postgresql" else None
        url = self.server.new_database() if self.server else None
        self.cluster = Cluster(folder, url, lease=LEASE)
        self.rng = rng
        self.disk = _disk(self.cluster.home.folder)
        #: Hashes of all events that the log had after a fault.
        self.seen: set[str] = set()
        skew = folder / "skew"
        skew.mkdir()
        (skew / "sitecustomize.py").write_text(
            "import time\n_real = time.time\ntime.time = lambda: _real() + 3600\n"
        )
        self._skew = {"PYTHONPATH": str(skew)}
        self.workers: list[subprocess.Popen[bytes]] = []
        self.happened: Counter[str] = Counter()

    def staff(self) -> None:
        """Replace dead workers, so that `WORKERS` are alive; the clock of the first is wrong."""
        for place in range(WORKERS):
            if place == len(self.workers):
                self.workers.append(self._worker(place))
            elif self.workers[place].poll() is not None:
                self.workers[place] = self._worker(place)

    def _worker(self, place: int) -> subprocess.Popen[bytes]:
        return self.cluster.worker(**({} if place else self._skew))

    def faults(self) -> dict[str, Callable[[], None]]:
        """Return all possible faults by name."""
        found = {
            "worker killed": self._kill_worker,
            "process killed": self._kill_process,
            "worker stopped past its lease": self._stop_worker,
            "Redis killed": self._kill_redis,
            "Redis emptied": self._empty_redis,
            "nonsense in Redis": self._nonsense,
            "leases and devices dropped": self._drop_tables,
            "dispatcher's lease taken": self._take_lease,
            "cache taken away": self._take_cache,
        }
        if self.server:
            found["PostgreSQL killed"] = self._kill_postgres
        if self.disk:
            found["disk full"] = self._fill_disk
        return found

    def strike(self) -> None:
        """Cause a random fault, then start dead workers again."""
        name, fault = self.rng.choice(sorted(self.faults().items(), key=lambda item: item[0]))
        with suppress(EventsError, DatabaseError):
            fault()
            self.happened[name] += 1
        self.staff()
        with suppress(EventsError, DatabaseError):
            self.seen |= set(crash_kills.hashes(self.cluster.home))

    def _kill_worker(self) -> None:
        kill(self.rng.choice(self.workers))

    def _kill_process(self) -> None:
        found = children(self.rng.choice(self.workers))
        if found:
            with suppress(ProcessLookupError):
                os.kill(self.rng.choice(found), signal.SIGKILL)

    def _stop_worker(self) -> None:
        worker = self.rng.choice(self.workers)
        everybody = [worker.pid, *children(worker)]
        for how, pause in ((signal.SIGSTOP, LEASE * 1.5), (signal.SIGCONT, 0)):
            for pid in everybody:
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
            time.sleep(pause)

    def _kill_redis(self) -> None:
        self.cluster.redis.kill()
        time.sleep(self.rng.uniform(0, 1))
        self.cluster.redis.start()

    def _empty_redis(self) -> None:
        with self.cluster.redis.client() as client:
            client.flushall()

    def _nonsense(self) -> None:
        app = make_app(self.cluster.redis.url)
        for device in self.cluster.devices():
            for _ in range(3):
                words = [device.name, "r0", self.rng.choice(["start", "build/0/0", "x"])]
                app.send_task("forge.hint", words, queue=queue_of(device.name))
        app.close()

    def _drop_tables(self) -> None:
        """Empty both tables: only the log is the source of truth, other tables may be lost."""
        self._write(LEASES.delete())
        self._write(DEVICES.delete())

    def _take_lease(self) -> None:
        self._write(LEASES.delete().where(LEASES.c.task == "@dispatcher"))

    def _take_cache(self) -> None:
        shutil.rmtree(self.cluster.home.artifacts, ignore_errors=True)

    def _fill_disk(self) -> None:
        filler = self.cluster.home.folder / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
        time.sleep(self.rng.uniform(0.5, 3))
        filler.unlink()

    def _kill_postgres(self) -> None:
        assert self.server
        self.server.kill()
        time.sleep(self.rng.uniform(0, 1))
        self.server.start()

    def _write(self, statement: Any) -> None:
        store = self.cluster.home.open_store()
        try:
            with store.database.writing() as connection:
                connection.execute(statement)
        finally:
            store.close()

    def judge(self, run: str, quiet: crash_kills.Essence) -> list[str]:
        """Return everything that is wrong with a run that has ended."""
        home = self.cluster.home
        state: Any = runs.state(home, run)
        with closing(home.open_store()) as store:
            keys = [row.key for row in history(store, run)]
        lost = self.seen - set(crash_kills.hashes(home))
        errors = crash_kills.errors(home, run)
        found = {
            f"it ended {state.status}: {state.failed}": not state.completed,
            "another result or lineage": crash_kills.essence(state) != quiet,
            f"{errors} errors of its audit": errors,
            "a key stands twice": len(set(keys)) < len(keys),
            f"{len(lost)} events were lost": lost,
        }
        return [f"{run}: {what}" for what, so in found.items() if so]

    def close(self) -> None:
        """Stop everything, and give the disk back."""
        self.cluster.close()
        if self.server:
            self.server.stop()
        if self.disk:
            subprocess.run(["umount", "-l", self.cluster.home.folder], check=True)


def _disk(folder: Path) -> bool:
    """Mount a small disk at the folder; return False if this user may not."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(folder)]
    return subprocess.run(mount, capture_output=True).returncode == 0


def carry(chaos: Chaos, of: Subject, run: str, seed: int) -> int:
    """Submit a run and cause faults until it has ended; return how often it was retried."""
    while True:
        try:
            of.submit(chaos.cluster.home, run, seed)
            break
        except EventsError:
            time.sleep(0.5)
    retried = 0
    while True:
        chaos.strike()
        time.sleep(chaos.rng.uniform(0, of.pause))
        with suppress(EventsError):
            state: Any = runs.state(chaos.cluster.home, run)
            if state.failed and "quarantined" in state.failed.reason:
                chaos.cluster.forge("retry", run)
                retried += 1
            elif state.ended:
                return retried


def torture(chaos: Chaos, folder: Path, of: Subject, faults: int) -> tuple[int, int, list[str]]:
    """Run until enough faults have happened; return (runs, retries, everything that is wrong)."""
    wrong: list[str] = []
    number = retried = 0
    chaos.staff()
    while chaos.happened.total() < faults:
        seed, run = number % of.seeds, f"r{number}"
        home = Home(folder / f"quiet-{run}")  # of that name, which models of phases have in theirs
        of.submit(home, run, seed)
        quiet = crash_kills.essence(runs.finish(home, run))
        retried += carry(chaos, of, run, seed)
        wrong += chaos.judge(run, quiet)
        number += 1
        print(f"run {run} ended after {chaos.happened.total()} faults, {len(wrong)} wrong", flush=True)
    return number, retried, wrong


def main() -> None:
    """Print the faults that happened and everything that was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of", default="evomerge", choices=["evomerge", "speedrun"])
    parser.add_argument("--database", default="sqlite", choices=["sqlite", "postgresql"])
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ["FORGE_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cluster").mkdir()
        chaos = Chaos(folder / "cluster", given.database, random.Random(given.seed))
        try:
            number, retried, wrong = torture(chaos, folder, subject(given.of, folder), given.faults)
        finally:
            chaos.close()
    for what, count in sorted(chaos.happened.items()):
        print(f"{count:5}  {what}")
    print(
        f"{given.database}: {number} runs under {chaos.happened.total()} faults, "
        f"{retried} times tried again after quarantine, {len(wrong)} mismatches"
    )
    for line in wrong[:20]:
        print(line)
    raise SystemExit(int(bool(wrong)))


if __name__ == "__main__":
    main()
