"""Background jobs: long work that needs models, in processes of its own, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from api.problems import UNPROCESSABLE, Problem
from runs.system.linked_processes import tied

#: Seconds after a job's end in which its result or failure answers other requests, too.
REMEMBERED = 60.0
#: Of one kind, under way or waiting.
WAITING = 16
#: The same of one user.
WAITING_OF_USER = 4
#: Seconds that one may take.
LONGEST = 3600.0
#: Processes that are remembered, and requests that were put off.
KEPT = 256


@dataclass
class Job:
    """One process, waiting, running or ended."""

    by: str = ""
    task: asyncio.Task[None] | None = None
    error: str | None = None
    #: The last line that it wrote.
    told: str = ""
    ended: float | None = None

    def since(self) -> float:
        """Return the seconds since the job ended; 0 while it runs."""
        return 0.0 if self.ended is None else time.monotonic() - self.ended


class Work:
    """Processes by what they are for."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        #: One at a time of each kind: who exports does not wait for who looks.
        self._lanes: dict[str, asyncio.Semaphore] = {}
        #: Request that was put off → when it was first made, and when it was made last.
        self._put_off: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    async def begin(
        self, name: str, command: list[str], again: bool = False, said: str = "", by: str = ""
    ) -> bool:
        """Start the job unless it runs, or has just failed (see `again`); return True if it started.

        `said` is the process's input: every user of the machine can see a process's arguments.
        Raises Problem 503 if too many jobs wait, of all users or of the user `by`.
        """
        job = self._jobs.get(name)
        if job is not None and job.ended is None:
            return False
        if job is not None and job.error and not again and job.since() < REMEMBERED:
            return False
        kind = name.partition(" ")[0]
        waiting = [j.by for n, j in self._jobs.items() if j.ended is None and n.startswith(kind)]
        own = waiting.count(by)
        if len(waiting) >= WAITING or own >= WAITING_OF_USER:
            detail = f"{len(waiting)} are waiting already, {own} of yours: ask again later."
            raise Problem(503, "Service Unavailable", detail, {"Retry-After": "30"})
        lane = self._lanes.setdefault(kind, asyncio.Semaphore(1))
        job = self._jobs[name] = Job(by)
        self._jobs.move_to_end(name)
        job.task = asyncio.create_task(self._carry(job, lane, command, said))
        ended = [n for n, j in self._jobs.items() if j.ended is not None]
        for old in ended[: max(0, len(self._jobs) - KEPT)]:
            del self._jobs[old]
        return True

    async def _carry(
        self, job: Job, lane: asyncio.Semaphore, command: list[str], said: str
    ) -> None:
        process = None
        try:
            async with lane, asyncio.timeout(LONGEST):
                process = await asyncio.create_subprocess_exec(
                    *tied(command),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
                made, told = await process.communicate(said.encode())
            job.told = (made.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
            if process.returncode:
                lines = told.decode("utf-8", "replace").strip().splitlines()
                job.error = lines[-1] if lines else f"it ended with {process.returncode}"
        except Exception as error:
            job.error = str(error) or type(error).__name__
        finally:
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            job.ended = time.monotonic()

    @contextlib.contextmanager
    def request(self, what: Hashable) -> Iterator[float]:
        """Give the time at which a request for several outcomes was first made, as of `monotonic`.

        A request that ends with Problem 503 is put off: the same request, made again, goes on, however
        long its outcomes take together. It is forgotten if it is not made again for `LONGEST` seconds.
        """
        now = time.monotonic()
        first, last = self._put_off.get(what, (now, now))
        first = first if now - last < LONGEST else now
        try:
            yield first
        except Problem as problem:
            self._put_off.pop(what, None)
            if problem.status == 503:
                self._put_off[what] = (first, time.monotonic())
                while len(self._put_off) > KEPT:
                    self._put_off.popitem(last=False)
            raise
        self._put_off.pop(what, None)

    async def outcome(
        self,
        name: str,
        command: list[str],
        said: str,
        patience: float,
        by: str,
        since: float = math.inf,
    ) -> str:
        """Return the last line that a process writes.

        The process is started, unless it runs, has ended less than `REMEMBERED` seconds ago, or has
        ended after `since`, the time that `request` gives. Raise Problem 503 if it takes longer than
        `patience` seconds: it goes on, and the request, made again, gets what it wrote. Raise Problem
        503 if too many processes of the user `by` wait, Problem 422 if the process failed.
        """
        job = self._jobs.get(name)
        forgotten = job is None or job.since() > REMEMBERED
        if job is None or (forgotten and job.ended is not None and job.ended < since):
            await self.begin(name, command, said=said, by=by)
            job = self._jobs[name]
        assert job.task
        await asyncio.wait([job.task], timeout=patience)
        if job.ended is None:
            detail = "The model's weights are read or built: ask again in a moment."
            raise Problem(503, "Service Unavailable", detail, {"Retry-After": "5"})
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
