"""Waits for the write lock of a SQLite log, with and without turns of its writers, in one run.

python -m benchmarks.turns [few] [team] [busy] [beside] [crowd] [--seconds 30] [--rounds 2]

few      4 workers whose tasks take about a second: the load of a run, a few events a second
team     8 workers with the same tasks
busy     8 workers whose tasks take about 50 ms
beside   4 workers as in `few`, beside a process that appends as fast as it can
crowd    8 processes that append as fast as they can

A worker is a process that does to the log what a device of `forge worker` does: it looks for its
grant, claims the task, works (it sleeps), appends a result, releases the task, and renews its lease.
Beside the workers run the dispatcher's queries and grants, and a reader that follows the log and
looks at the devices ten times a second. Results have the sizes of a real run's events.

Rounds with and without turns alternate, each on a log of its own. Timed is every append and every
other write transaction, from the call until it is durable.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.log import Noted
from events import EventsError, EventStore, New, fair_lock, sqlite
from worker.queue.bookkeeping import Received
from worker.queue.device_table import Roster
from worker.queue.leases import Leases, myself

#: Mean bytes of a real run's evaluations, which are half of its events, and of its other events
#: (docs/benchmarks.md: 5.8 KB, and 3.7 KB of all).
SIZES = (1600, 5800)
#: Number of runs that the workers' tasks belong to.
RUNS = 4
#: Seconds between two looks of a device at its grant, of the dispatcher, and of the reader.
GRANT, STEP, LOOK = 0.02, 0.02, 0.1

_FORK = multiprocessing.get_context("fork")


@dataclass
class Told:
    """A process's report at its end: seconds of each append and other write, errors, appends."""

    appends: list[float] = field(default_factory=list)
    tables: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    done: int = 0


#: What one process does to the log at a path until an event is set.
Actor = Callable[["Player"], None]


@dataclass
class Player:
    """A process of a load: its log, its number, and the transactions that it has timed."""

    path: Path
    number: int
    #: Seconds that a task takes.
    work: float
    ended: Any
    told: Told = field(default_factory=Told)

    def store(self) -> EventStore:
        """Open the log."""
        return sqlite.open_store(self.path)

    def tries(self, times: list[float], write: Callable[[], Any]) -> Any:
        """Return what a write returns, and note how long it took; None if it failed."""
        began = time.monotonic()
        try:
            return write()
        except EventsError as error:
            self.told.errors.append(str(error)[:200])
            return None
        finally:
            times.append(time.monotonic() - began)

    def append(self, store: EventStore, stream: str, event: Noted, key: str) -> None:
        """Append one event."""
        if self.tries(self.told.appends, lambda: store.append(stream, None, [New(event, key)])):
            self.told.done += 1


def device(player: Player) -> None:
    """Do to the log what a device and its process do."""
    rng = random.Random(player.number)
    store, owner = player.store(), myself(f"device {player.number}")
    roster, leases, told = Roster(store.database), Leases(store.database, owner), player.told
    name = roster.enter(f"d{player.number:02d}", owner, "cpu")
    roster.say(name, owner, "idle")
    idle = {"grant_run": None, "grant_task": None, "run": None, "task": None}
    beaten = time.monotonic()
    while not player.ended.wait(GRANT):
        if time.monotonic() - beaten > leases.beat:
            player.tries(told.tables, lambda: roster.beat(name, owner))
            beaten = time.monotonic()
        grant = roster.grant_of(name, owner)
        if grant is None:
            continue
        task, busy = "/".join(grant), roster.saying(name, owner, "busy")
        if player.tries(told.tables, lambda t=task, b=busy: leases.claim(t, b)) is None:
            continue
        with leases.heartbeat(task):
            player.ended.wait(rng.uniform(0.5, 1.5) * player.work)
            event = Noted(text="x" * rng.choice(SIZES), numbers=())
            player.append(store, grant[0], event, task)
        said = roster.saying(name, owner, "idle", **idle)
        player.tries(told.tables, lambda t=task, s=said: leases.release(t, s))
    store.close()


def dispatcher(player: Player) -> None:
    """Do to the log what the dispatcher does: follow it, grant tasks, renew, note service."""
    store = player.store()
    roster, received = Roster(store.database), Received(store.database)
    leases = Leases(store.database, myself("dispatcher"))
    leases.claim("@dispatcher")
    after, count, renewed, noted = 0, 0, time.monotonic(), time.monotonic()
    while not player.ended.wait(STEP):
        rows = store.read_all(after, limit=1000)
        after = rows[-1].position if rows else after
        leases.held()
        grants = {}
        for found in roster.devices():
            if found.free:
                grants[found.name] = (f"r{count % RUNS}", f"task-{count}")
                count += 1
        if grants:
            player.tries(player.told.tables, lambda g=grants: roster.grant(g))
        if time.monotonic() - renewed > 10 / 6:
            player.tries(player.told.tables, lambda: leases.claim("@dispatcher"))
            renewed = time.monotonic()
        if time.monotonic() - noted > 5.0:
            tags = {f"user {n}": float(count) for n in range(5)}
            player.tries(player.told.tables, lambda t=tags: received.write(t))
            noted = time.monotonic()
    store.close()


def reader(player: Player) -> None:
    """Follow the log and look at the devices, as the API does."""
    store = player.store()
    roster, after = Roster(store.database), 0
    while not player.ended.wait(LOOK):
        rows = store.read_all(after, limit=1000)
        after = rows[-1].position if rows else after
        roster.devices()
    store.close()


def greedy(player: Player) -> None:
    """Append as fast as possible."""
    store, number = player.store(), 0
    event = Noted(text="x" * 190, numbers=tuple((n + 1) / 7 for n in range(9)))
    while not player.ended.is_set():
        name = f"greedy-{player.number}"
        player.append(store, name, event, f"{name}/{number}")
        number += 1
    store.close()


@dataclass(frozen=True)
class Load:
    """The processes of a load: those whose shares are compared, and those beside them."""

    compared: Actor
    count: int
    beside: tuple[Actor, ...] = ()
    work: float = 0.0


LOADS = {
    "few": Load(device, 4, (dispatcher, reader), 1.0),
    "team": Load(device, 8, (dispatcher, reader), 1.0),
    "busy": Load(device, 8, (dispatcher, reader), 0.05),
    "beside": Load(device, 4, (dispatcher, reader, greedy), 1.0),
    "crowd": Load(greedy, 8),
}


def _play(actor: Actor, player: Player, turns: bool, begin: Any, end: Any) -> None:
    """Do one process's part, and send what it has timed."""
    if not turns:
        fair_lock.Turnstile.turn = lambda self: nullcontext()  # pyright: ignore
    begin.wait()
    try:
        actor(player)
    except Exception as error:
        player.told.errors.append(f"{type(error).__name__}: {error}"[:200])
    end.send(player.told)


@dataclass
class Measured:
    """The results of one contestant's rounds."""

    appends: list[float] = field(default_factory=list)
    tables: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    #: Appends a second, and the least writer's part of a fair share, by round.
    rates: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)

    def line(self) -> str:
        """Return the figures as a line."""
        return (
            f"{statistics.mean(self.rates):7.1f} appends/s; append {_waits(self.appends)}; "
            f"other writes ({len(self.tables)}) {_waits(self.tables)}; least writer "
            f"{min(self.shares):.2f} of a fair share; errors {len(self.errors)}"
            f"{' ' + self.errors[0] if self.errors else ''}"
        )


def _waits(seconds: list[float]) -> str:
    """Return median, 99th percentile and worst of some waits, in milliseconds."""
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    p99 = ordered[len(ordered) * 99 // 100]
    return (
        f"p50 {statistics.median(ordered) * 1e3:.1f} p99 {p99 * 1e3:.1f} "
        f"worst {ordered[-1] * 1e3:.0f} ms"
    )


def play(load: Load, turns: bool, seconds: float, measured: Measured) -> None:
    """Play a round of a load on a log of its own, and add its figures."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "log.db"
        store = sqlite.open_store(path)
        for make_table in (Roster, Leases, Received):
            make_table(store.database)
        store.close()
        actors = [load.compared] * load.count + list(load.beside)
        begin, ended = _FORK.Event(), _FORK.Event()
        ends, processes = [], []
        for number, actor in enumerate(actors):
            mine, its = _FORK.Pipe(duplex=False)
            player = Player(path, number, load.work, ended)
            processes.append(_FORK.Process(target=_play, args=(actor, player, turns, begin, its)))
            ends.append(mine)
            processes[-1].start()
        began = time.monotonic()
        begin.set()
        time.sleep(seconds)
        took = time.monotonic() - began
        ended.set()
        told: list[Told] = [end.recv() for end in ends]
        for process in processes:
            process.join()
    counts = [each.done for each in told[: load.count]]
    for each in told:
        measured.appends += each.appends
        measured.tables += each.tables
        measured.errors += each.errors
    measured.rates.append(sum(counts) / took)
    measured.shares.append(min(counts) / max(statistics.mean(counts), 1e-9))


@contextmanager
def in_mode(mode: str) -> Iterator[None]:
    """Make the log use this journal mode, as if it were the safe one here."""
    kept, sqlite.journal_mode = sqlite.journal_mode, lambda *_: mode
    try:
        yield
    finally:
        sqlite.journal_mode = kept


def compare(name: str, mode: str, seconds: float, rounds: int) -> None:
    """Measure a load in rounds with and without turns, in alternating order."""
    found = {True: Measured(), False: Measured()}
    with in_mode(mode):
        for number in range(rounds):
            for turns in (True, False)[:: -1 if number % 2 else 1]:
                play(LOADS[name], turns, seconds, found[turns])
    for turns, measured in found.items():
        print(f"{name}, {mode}, {'turns' if turns else 'none'}: {measured.line()}", flush=True)
    ratio = [
        statistics.mean(found[False].rates) / max(statistics.mean(found[True].rates), 1e-9),
        statistics.median(found[False].appends) / statistics.median(found[True].appends),
        max(found[False].appends) / max(found[True].appends),
    ]
    print(f"{name}, {mode}: without turns {ratio[0]:.2f} times the appends/s, {ratio[1]:.2f} times "
          f"the median wait, {ratio[2]:.2f} times the worst", flush=True)  # fmt: skip


def main() -> None:
    """Compare the loads that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("loads", nargs="*", metavar="load", help=", ".join(LOADS))
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--mode", choices=["truncate", "wal"])
    given = parser.parse_args()
    modes = [given.mode] if given.mode else sorted({sqlite.journal_mode(), "wal"})
    for name in given.loads or LOADS:
        for mode in modes:
            compare(name, mode, given.seconds, given.rounds)


if __name__ == "__main__":
    main()
