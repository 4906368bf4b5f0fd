"""Background jobs: long work that needs models, in processes of its own, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from agent_forge.api.problems import UNPROCESSABLE, Problem
from agent_forge.runs.system.linked_processes import tied

#: Seconds in which a failure answers further requests, too.
REMEMBERED = 60.0
#: Of one kind, under way or waiting.
WAITING = 16
#: The same of one user.
WAITING_OF_USER = 4
#: Seconds that one may take.
LONGEST = 3600.0
#: Processes that are remembered.
KEPT = 256


@dataclass
class Job:
    """One process, waiting, running or ended."""

    by: str = ""
    task: asyncio.Task[None] | None = None
    error: str | None = None
    #: The last line that it wrote.
    told: str = ""
    #: Times by `monotonic`: of the request, of the process's start, and of its end.
    requested: float = field(default_factory=lambda: time.monotonic())
    started: float | None = None
    ended: float | None = None
    #: When `outcome` first gave the result or failure, and the mark that the result had then.
    given: float | None = None
    mark: Hashable = None

    def since(self) -> float:
        """Return the seconds since the job ended; 0 while it runs."""
        return 0.0 if self.ended is None else time.monotonic() - self.ended


class Work:
    """Processes by what they are for."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        #: One at a time of each kind: who exports does not wait for who looks.
        self._lanes: dict[str, asyncio.Semaphore] = {}

    async def begin(
        self, name: str, command: list[str], again: bool = False, text: str = "", by: str = ""
    ) -> bool:
        """Start the job unless it runs, or has just failed (see `again`); return True if it started.

        `text` is the process's input: every user of the machine can see a process's arguments.
        Raises Problem 503 if too many jobs wait, of all users or of the user `by`.
        """
        job = self._jobs.get(name)
        if job is not None and job.ended is None:
            return False
        if job is not None and job.error and not again:
            assert job.ended is not None
            if time.monotonic() - job.ended < REMEMBERED:
                return False
        kind = name.partition(" ")[0]
        waiting = [j.by for n, j in self._jobs.items() if j.ended is None and n.startswith(kind)]
        count = waiting.count(by)
        if len(waiting) >= WAITING or count >= WAITING_OF_USER:
            detail = f"{len(waiting)} are waiting already, {count} of yours: ask again later."
            raise Problem(503, "Service Unavailable", detail, {"Retry-After": "30"})
        lane = self._lanes.setdefault(kind, asyncio.Semaphore(1))
        job = self._jobs[name] = Job(by)
        self._jobs.move_to_end(name)
        job.task = asyncio.create_task(self._carry(job, lane, command, text))
        ended = [n for n, j in self._jobs.items() if j.ended is not None]
        for old in ended[: max(0, len(self._jobs) - KEPT)]:
            del self._jobs[old]
        return True

    async def _carry(
        self, job: Job, lane: asyncio.Semaphore, command: list[str], text: str
    ) -> None:
        process = None
        try:
            async with lane, asyncio.timeout(LONGEST):
                job.started = time.monotonic()
                process = await asyncio.create_subprocess_exec(
                    *tied(command),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
                output, messages = await process.communicate(text.encode())
            job.told = (output.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
            if process.returncode:
                lines = messages.decode("utf-8", "replace").strip().splitlines()
                job.error = lines[-1] if lines else f"it ended with {process.returncode}"
        except Exception as error:
            job.error = str(error) or type(error).__name__
        finally:
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            job.ended = time.monotonic()

    async def outcome(
        self,
        name: str,
        command: list[str],
        text: str,
        patience: float,
        by: str,
        what: str,
        mark: Callable[[str], Hashable],
    ) -> str:
        """Return the last line that a process writes.

        The process is started, unless it runs or its outcome is known. A result is known as long as
        its `mark` stays the one that it had when it was first given; the mark None is of no result. A
        failure is known for `REMEMBERED` seconds after it was first given. So a request for several
        outcomes ends, however long they take together and however seldom it is made.

        Raise Problem 503 if it takes longer than `patience` seconds: it goes on, and the request, made
        again, gets what it wrote. `what` names the result in that error. Raise Problem 503 if too many
        processes of the user `by` wait, Problem 422 if the process failed.
        """
        job = self._jobs.get(name)
        if job is None or await asyncio.to_thread(_forgotten, job, mark):
            await self.begin(name, command, again=True, text=text, by=by)
        job = self._jobs[name]
        self._jobs.move_to_end(name)
        assert job.task
        await asyncio.wait([job.task], timeout=patience)
        if job.ended is None:
            raise Problem(503, "Service Unavailable", _progress(job, what), {"Retry-After": "2"})
        if job.given is None:
            job.mark = await asyncio.to_thread(mark, job.told)
            job.given = time.monotonic()
        if job.error:
            raise Problem(422, UNPROCESSABLE, job.error)
        return job.told

    def status(self, name: str) -> str:
        """Return "none", "running", "done" or "failed"."""
        job = self._jobs.get(name)
        if job is None:
            return "none"
        if job.ended is None:
            return "running"
        return "failed" if job.error else "done"

    def failed(self, name: str) -> str | None:
        """Return the error of a job that failed; None if the job runs, succeeded or is unknown."""
        job = self._jobs.get(name)
        return None if job is None or job.ended is None else job.error

    async def stop(self) -> None:
        """End everything."""
        tasks = [job.task for job in self._jobs.values() if job.task and not job.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _forgotten(job: Job, mark: Callable[[str], Hashable]) -> bool:
    """Return True if a job's outcome answers no further request. For a thread: it looks at files."""
    if job.given is None:
        return False
    if job.error:
        return time.monotonic() - job.given >= REMEMBERED
    now = mark(job.told)
    return now is None or now != job.mark


def _progress(job: Job, what: str) -> str:
    """Return what a job that has not ended does, and for how long."""
    now = time.monotonic()
    if job.started is None:
        waited = now - job.requested
        return f"Waiting to read {what}, after other models: {waited:.0f} s so far. Ask again."
    return f"Reading {what}, or building it: {now - job.started:.0f} s so far. Ask again."
