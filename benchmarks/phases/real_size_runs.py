"""Runs of `benchmarks.phases.real_size`: carried by `forge`, watched from outside, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from agent_forge.events import EventStore
from agent_forge.runs import kinds
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.history import audit, repository
from agent_forge.runs.history.run_cache import RunCache
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import decide, whole
from agent_forge.runs.lists import finding
from agent_forge.weights.recipes import Train
from benchmarks.memory import anonymous

#: Name of each run, in a home of its own.
RUN = "real"
#: File of a home whose run is in its log.
SUBMITTED = "submitted"
#: Seconds between two looks at processes and log.
PERIOD = 0.25
#: A kill comes after this share of the time that an undisturbed run goes without an event there.
SHARE = 0.6
#: First part of a task's key → what the task is; other tasks measure.
SORTS = {
    "start": "starts",
    **dict.fromkeys(("sample", "propose", "dream"), "samples"),
    **dict.fromkeys(("make", "build", "layers", "fit", "encode", "decompose"), "makes"),
}


@dataclass
class Seen:
    """Time, memory and silence of a command, or of all commands of one run."""

    seconds: float = 0.0
    processor: float = 0.0
    #: Most private memory of its processes at once, MiB.
    memory: float = 0.0
    #: Longest time without a line, and the line before it.
    silence: tuple[float, str] = (0.0, "")
    #: Sort of work → longest time without an event in it; what the tasks there were.
    gaps: dict[str, float] = field(default_factory=dict[str, float])
    #: For each kill: the sort of work, and the seconds since the last event.
    kills: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    code: int | None = None
    lines: list[str] = field(default_factory=list[str])

    def add(self, other: Seen) -> None:
        """Add what was seen of the next command of the same run."""
        self.seconds += other.seconds
        self.processor += other.processor
        self.memory = max(self.memory, other.memory)
        self.silence = max(self.silence, other.silence)
        for sort, gap in other.gaps.items():
            self.gaps[sort] = max(gap, self.gaps.get(sort, 0.0))
        self.kills += other.kills
        self.code = other.code
        self.lines += other.lines


class Progress:
    """The log of a run, followed from outside: what the run does, and since when."""

    def __init__(self, home: Path) -> None:
        """Follow the run `RUN` of a home from now on, which need not exist yet."""
        self._home, self._store = Home(home), None
        self._runs: RunCache | None = None
        self._run: str | None = None
        self.sort, self.since = "submits", time.monotonic()
        self.gaps: dict[str, float] = {}

    def look(self) -> float:
        """Read what is new; return the seconds since the last event, or since the process began."""
        rows = self._news()
        now = time.monotonic()
        gap = now - self.since
        self.gaps[self.sort] = max(gap, self.gaps.get(self.sort, 0.0))
        if rows is None:
            return gap
        self.since, self.sort = now, rows
        return 0.0

    def close(self) -> None:
        """Close the log."""
        if self._store is not None:
            self._store.close()

    def _news(self) -> str | None:
        """Return the sort of work that comes next if there are new events, else None."""
        if not (self._home.folder / SUBMITTED).exists():
            return None
        if self._runs is None:
            self._store = self._home.open_store()
            self._runs = RunCache(self._store, 1)
        assert self._store is not None
        with suppress(NotFoundError):
            self._run = self._run or finding.full_name(self._store, RUN)
        if self._run is None:
            return None
        state, rows = self._runs.refresh(self._run)
        return sort_of(state) if rows else None


def sort_of(state: Any) -> str:
    """Return what a run does next in a word: starts, trains, samples, makes, measures, ends."""
    if state.submitted is None or state.ended:
        return "ends"
    tasks = decide(state).tasks
    if not tasks:
        return "decides"
    task = whole(tasks[0])
    if isinstance(getattr(task, "recipe", None), Train):
        return "trains"
    return SORTS.get(task.key.partition("/")[0], "measures")


def carried(command: Sequence[str], home: Path, kills: Mapping[str, float] | None = None) -> Seen:
    """Run a command to its end, or to a kill -9 of it after some seconds in a sort of work."""
    seen, began = Seen(), time.monotonic()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=home,
        env=os.environ | {"FORGE_HOME": str(home), "FORGE_USER": "real"},
        start_new_session=True,
        text=True,
    )
    reader = threading.Thread(target=_read, args=(process, seen, home / SUBMITTED))
    reader.start()
    with closing(Progress(home)) as progress:
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            seen.memory = max(seen.memory, anonymous(process.pid))
            lost = progress.look()
            if not seen.kills and lost >= (kills or {}).get(progress.sort, float("inf")):
                os.killpg(process.pid, signal.SIGKILL)
                seen.kills.append((progress.sort, lost))
            time.sleep(PERIOD)
        progress.look()
    process.returncode = seen.code = os.waitstatus_to_exitcode(status)
    reader.join()
    seen.gaps = progress.gaps
    seen.seconds, seen.processor = time.monotonic() - began, usage.ru_utime + usage.ru_stime
    return seen


def _read(process: subprocess.Popen[str], seen: Seen, submitted: Path) -> None:
    """Keep the lines of a process, and the longest time between two, the last of which is its end."""
    assert process.stdout
    before, last = time.monotonic(), "(its begin)"
    for line in chain(process.stdout, [""]):
        now = time.monotonic()
        seen.silence = max(seen.silence, (now - before, last))
        before, last = now, line.strip()
        seen.lines.append(last)
        if last.startswith(f"run {RUN} ("):
            submitted.touch()


def killed(command: Sequence[str], home: Path, moments: Mapping[str, float]) -> Seen:
    """Kill a run once in each sort of work of `moments`; the same command continues it to its end."""
    whole_run, left = Seen(), dict(moments)
    while True:
        seen = carried(command, home, left)
        whole_run.add(seen)
        if not seen.kills:
            return whole_run
        del left[seen.kills[0][0]]


def moments(seen: Seen, count: int) -> dict[str, float]:
    """Return sort of work → seconds without an event after which to kill there, of `count` sorts."""
    sorts = [sort for sort in ("trains", "measures", "samples", "makes", "starts") if sort in seen.gaps]
    return {sort: SHARE * seen.gaps[sort] for sort in sorts[:count]}


def outcome(home: Path) -> tuple[object, ...]:
    """Return what kills must not change: digests, figures; and findings of an audit."""
    with closing(Home(home).open_store()) as store:
        return _outcome(store, finding.full_name(store, RUN))


def _outcome(store: EventStore, run: str) -> tuple[object, ...]:
    state, rows = repository.load(store, run), list(repository.history(store, run))
    kind = kinds.of(state.kind)
    result = kind.models.result(state) if state.completed else None
    found = [finding_ for finding_ in audit.audit(rows) if finding_.level == "error"]
    return state.lineage_digest(), result and result.digest, kind.figures(state), found
