"""Kills at system calls: a writer of a log dies right before each kind of call that matters.

    workload    the appends that every rung of the crash ladder makes, and what must hold afterwards
    kill_at     make them in a process that strace kills at its n-th call of one name

A call that was not made is a process that died after the call before it, so the calls that change
files or sync them are all the places there are. Opening a new log is part of it.

    python -m tests.acceptance.events.test_kill_at_syscalls FOLDER JOURNAL_MODE EACH

kills at about EACH places of every kind of call and prints the verdicts. The tests run that in a
process of its own, because it forks: everything is imported once, and pytest may have threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from agent_forge.events import Envelope, Event, EventsError, EventStore, New, chain
from agent_forge.events.databases import sqlite
from agent_forge.events.databases.sqlite import open_store
from testing.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
CALLS = ("fsync", "fdatasync", "rename", "pwrite64", "unlink", "ftruncate")
#: What our store asks of a library with the WAL bug and of one without.
MODES = (sqlite.journal_mode((3, 40, 1)), sqlite.journal_mode((3, 52, 0)))
#: From linux/prctl.h: who may trace us, where the kernel restricts it to parents.
PR_SET_PTRACER, ANYBODY = 0x59616D61, -1

#: More than SQLite's page cache of two megabytes, so that pages reach the file before the commit.
BIG = 2_300_000


class Noted(Event):
    type = "noted"
    value: str


@dataclass(frozen=True)
class Batch:
    """One append: all of its events or none."""

    stream: str
    expected: int
    events: tuple[New, ...]

    @property
    def keys(self) -> list[str]:
        return [new.key for new in self.events]


class Verdict(NamedTuple):
    """What a crash left: acknowledged events that are gone, and everything that is not right."""

    lost: int
    wrong: list[str]


def workload(big: int = BIG, prefix: str = "") -> list[Batch]:
    """Appends of one client to three streams, in order; the fifth is `big` characters."""
    versions: dict[str, int] = {}
    batches = []
    for number, (stream, sizes) in enumerate(
        [
            ("a", [9, 9, 9]),
            ("b", [30]),
            ("a", [5000, 9]),
            ("c", [9] * 4),
            ("a", [9, big, 9]),
            ("b", [9, 9]),
            ("c", [12_000]),
            ("b", [9] * 5),
            ("a", [9, 9]),
            ("c", [700, 9, 9]),
        ]
    ):
        events = tuple(
            New(Noted(value=f"{number}.{i} " + "x" * size), f"{prefix}{number}.{i}")
            for i, size in enumerate(sizes)
        )
        stream = f"{prefix}{stream}"
        batches.append(Batch(stream, versions.get(stream, 0), events))
        versions[stream] = versions.get(stream, 0) + len(events)
    return batches


def perform(
    store: EventStore, batches: Sequence[Batch], said: Callable[[int], object] = lambda _: None
) -> None:
    """Make the appends; `said` hears the number of each once it has returned."""
    for number, batch in enumerate(batches):
        store.append(batch.stream, batch.expected, batch.events)
        said(number)


def essence(rows: Sequence[Envelope]) -> list[tuple[str, int, str, str, str]]:
    """What two undisturbed runs of one workload have in common: not times, ids and hashes."""
    return [(row.stream, row.version, row.type, row.data, row.key) for row in rows]


def planned(batches: Sequence[Batch]) -> list[tuple[str, int, str, str, str]]:
    """The essence of a log that has all batches, in their order."""
    return [
        (batch.stream, version, new.event.type, new.event.payload(), new.key)
        for batch in batches
        for version, new in enumerate(batch.events, start=batch.expected + 1)
    ]


def judge(rows: Sequence[Envelope], acknowledged: int, batches: Sequence[Batch]) -> Verdict:
    """The rows of a client that appends one batch after the other, after a crash.

    Every acknowledged batch must be there, at most one more, each of them whole, all in order.
    """
    here = [row.key for row in rows]
    promised = [key for batch in batches[:acknowledged] for key in batch.keys]
    asked = promised + [key for batch in batches[acknowledged:][:1] for key in batch.keys]
    lost = len(set(promised) - set(here))
    wrong = [f"{lost} acknowledged events are lost"] if lost else []
    if not lost and here not in (promised, asked):
        wrong.append(f"rows {here[:40]} are neither {acknowledged} batches nor one more")
    return Verdict(lost, wrong + breaks(rows))


def breaks(rows: Sequence[Envelope]) -> list[str]:
    """Where the chain of any stream is broken."""
    streams: dict[str, list[Envelope]] = {}
    for row in rows:
        streams.setdefault(row.stream, []).append(row)
    return [f"{name}: {b.message}" for name, mine in streams.items() for b in chain.check(mine)]


def rows_of(store: EventStore, batches: Sequence[Batch]) -> list[Envelope]:
    """The rows of the batches' streams, by position."""
    streams = {batch.stream for batch in batches}
    return sorted(row for stream in streams for row in store.read(stream))


def resumed(store: EventStore, acknowledged: int, batches: Sequence[Batch]) -> Verdict:
    """Judge what a crash left, then make all appends again: the log must end as if undisturbed."""
    lost, wrong = judge(rows_of(store, batches), acknowledged, batches)
    with store.database.reading() as connection:
        wrong += store.database.damage(connection)
    perform(store, batches)
    rows = rows_of(store, batches)
    wrong += judge(rows, len(batches), batches).wrong
    if essence(rows) != planned(batches):
        wrong.append("made again, the log is not that of an undisturbed client")
    return Verdict(lost, wrong)


# Kills


def untraceable() -> str | None:
    """Why no process can be killed at a system call here; None where one can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    inject = ["-e", "trace=getpid", "-e", "inject=getpid:signal=KILL:when=1000"]
    done = subprocess.run(["strace", "-f", *inject, "true"], capture_output=True, text=True)
    if done.returncode == 0:
        return None
    return f"strace cannot trace here: {done.stderr.strip().splitlines()[-1:]}"


Work = Callable[[Callable[[int], object]], object]


def forked(
    work: Work,
    first: Callable[[], object] = lambda: None,
    beside: Callable[[int], object] = lambda _pid: None,
) -> tuple[int, int]:
    """Do `work` in a process of its own: its exit code, and how many appends it acknowledged.

    There, `first` is called before it; here, `beside` gets the process's id.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            first()
            work(lambda _: os.write(writer, b"."))
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    beside(child)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as said:
        return os.waitstatus_to_exitcode(status), len(said.read())


def traced(options: Sequence[str], work: Work) -> tuple[int, int]:
    """The same under strace."""
    tracers = []

    def attach(child: int) -> None:
        tracers.append(subprocess.Popen(["strace", "-f", "-qq", *options, "-p", str(child)]))

    done = forked(work, _wait_for_tracer, attach)
    tracers[0].wait(timeout=PATIENCE)
    return done


def _wait_for_tracer(seconds: float = PATIENCE) -> None:
    """Raises where none comes: the parent then sees another exit code than it counts on."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PTRACER, ctypes.c_ulong(ANYBODY), 0, 0, 0)
    given_up = time.monotonic() + seconds
    while re.search(r"TracerPid:\s+0$", Path("/proc/self/status").read_text(), re.M):
        if time.monotonic() > given_up:
            raise TimeoutError("strace did not attach")
        time.sleep(0.001)


def client(place: Path, batches: Sequence[Batch]) -> Work:
    """The work that is killed: make the log, and the appends."""
    return lambda said: perform(open_store(place), batches, said)


def count(folder: Path, batches: Sequence[Batch]) -> Counter[str]:
    """How often an undisturbed client makes each of the calls."""
    folder.mkdir()
    out = folder / "calls"
    options = ["-o", str(out), "-e", f"trace={','.join(CALLS)}"]
    assert traced(options, client(folder / "log.db", batches)) == (0, len(batches))
    return Counter(re.findall(rf"\b({'|'.join(CALLS)})\(", out.read_text()))


class Killed(NamedTuple):
    """A point, whether the client died there, how many appends had returned, what it left behind."""

    point: str
    killed: bool
    acknowledged: int
    verdict: Verdict


def kill_at(point: str, folder: Path, batches: Sequence[Batch]) -> Killed:
    """Kill a client at its n-th call, `point` is "name:n"; look at its log and go on with it."""
    call, _, number = point.partition(":")
    folder.mkdir()
    inject = f"inject={call}:signal=KILL:when={number}"
    options = ["-o", os.devnull, "-e", f"trace={call}", "-e", inject]
    code, acknowledged = traced(options, client(folder / "log.db", batches))
    verdict = reopened(lambda: open_store(folder / "log.db"), acknowledged, batches)
    shutil.rmtree(folder)
    return Killed(point, code == -signal.SIGKILL, acknowledged, verdict)


def reopened(opener: Callable[[], EventStore], acknowledged: int, batches: Sequence[Batch]) -> Verdict:
    """Open the log after a crash, judge it, and make the appends again."""
    try:
        with contextlib.closing(opener()) as store:
            return resumed(store, acknowledged, batches)
    except EventsError as error:
        return Verdict(sum(len(batch.events) for batch in batches[:acknowledged]), [str(error)])


def all_points(counts: Counter[str]) -> list[str]:
    """Every call that an undisturbed client makes."""
    return [f"{call}:{n}" for call in CALLS for n in range(1, counts[call] + 1)]


def some_points(counts: Counter[str], each: int) -> list[str]:
    """Of each call about as many, spread over all of it and denser at the beginning: most writes
    are those of the one big append.
    """
    numbers: dict[str, set[int]] = {}
    for call, last in counts.items():
        evenly = {1 + (last - 1) * i // (each // 2) for i in range(each // 2 + 1)}
        numbers[call] = evenly | {round(last ** (i / (each // 2))) for i in range(each // 2)}
    return [f"{call}:{n}" for call, chosen in sorted(numbers.items()) for n in sorted(chosen)]


def main(folder: str, mode: str, each: int) -> None:
    """Kill at some points of each call; prints what came of it as JSON."""
    sqlite.journal_mode = lambda *_: mode  # this process is ours alone
    where, batches = Path(folder), workload()
    counts = count(where / "undisturbed", batches)
    results = [kill_at(point, where / "killed", batches) for point in some_points(counts, each)]
    print(json.dumps({"counts": counts, "results": results}))  # noqa: T201


# Tests


@pytest.fixture(scope="module")
def strace() -> None:
    """Skips, and says why, where no process may be traced."""
    if why := untraceable():
        pytest.skip(f"no kills at system calls: {why}")


def walk(folder: Path, mode: str, each: int) -> tuple[dict[str, int], list[Killed]]:
    """`main` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(folder), mode, str(each)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    results = [Killed(*row[:3], Verdict(*row[3])) for row in said["results"]]
    return said["counts"], results


@pytest.mark.slow
@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("mode", [pytest.param(MODES[0], marks=pytest.mark.smoke), *MODES[1:]])
def test_a_kill_at_any_system_call_loses_nothing_and_halves_nothing(tmp_path: Path, mode: str) -> None:
    """Between two writes is where a log is torn; the next process must find and mend it."""
    counts, results = walk(tmp_path, mode, each=8)
    for needed in ({"pwrite64"}, {"fsync", "fdatasync"}, {"unlink", "ftruncate"}):
        assert needed & set(counts), "the kernel is asked for other calls than were killed at"
    assert all(result.killed for result in results)
    assert len({result.acknowledged for result in results}) >= 4, "the kills are all at one place"
    assert [result for result in results if result.verdict.wrong] == []


@pytest.mark.slow
@pytest.mark.usefixtures("strace")
def test_without_a_journal_the_same_kills_tear_the_log(tmp_path: Path) -> None:
    """The check above can fail: this is what it would find."""
    _, results = walk(tmp_path, "off", each=6)
    assert all(result.killed for result in results)
    assert any(result.verdict.wrong for result in results)


def test_a_place_without_strace_is_reported_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rung that was left out must not look like one that holds."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert untraceable() == "strace is not installed"
    refuses = tmp_path / "strace"
    refuses.write_text("#!/bin/sh\necho 'ptrace: Operation not permitted' >&2; exit 1\n")
    refuses.chmod(0o755)
    assert "Operation not permitted" in (untraceable() or "")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
