"""Processes beside the server that open models and data: short reads, and background jobs.

A reader is a `worker.devices.reading_process` and has limited time. Each user has one reader at a
time, so that one user's large files do not block other users. If a reader is late or dies, only its
own request fails. Long work that needs models is a background job: each job has a process of its own,
and one job of a kind runs at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agent_forge.api.options import Options
from agent_forge.api.problems import UNPROCESSABLE, HttpError
from agent_forge.api.schemas.runs import Json
from agent_forge.runs import errors
from agent_forge.runs.system.child_environment import child_environment
from agent_forge.runs.system.linked_processes import tied

log = logging.getLogger(__name__)

#: Processes of a kind at once.
PLACES = 2
#: Seconds that a request waits for a place, and that a process is kept without any work.
PATIENCE = 20.0
IDLE = 300.0
#: Seconds that one picture may take.
DRAWING = 60.0


class Readers:
    """The reading processes, by the kind of their work."""

    def __init__(self, options: Options) -> None:
        env = dict(os.environ) if options.anywhere else child_environment("reader", hub=options.hub)
        self._lanes = {
            "check": ReaderLane(env, options.check_seconds),
            "measure": ReaderLane(env, options.register_seconds),
            "gguf_types": ReaderLane(env, options.check_seconds),
            "draw": ReaderLane(env, DRAWING),
        }
        self._lanes["draw_report"] = self._lanes["draw"]

    async def ask(self, order: str, user: str, **more: object) -> Json:
        """Return a process's answer to an order of the user. Raises ForgeError, Problem."""
        reply = await self._lanes[order].ask(user, {"order": order, **more})
        if "answer" in reply:
            return reply["answer"]
        kind = getattr(errors, reply["error"], None)
        raise RuntimeError(reply["detail"]) if kind is None else kind(reply["detail"])

    def stop(self) -> None:
        """End all processes."""
        for lane in set(self._lanes.values()):
            lane.stop()


class ReaderLane:
    """Processes for one kind of work."""

    def __init__(self, env: Mapping[str, str], seconds: float) -> None:
        self._env, self._seconds = env, seconds
        self._places = asyncio.Semaphore(PLACES)
        self._users: dict[str, asyncio.Lock] = {}
        self._threads = ThreadPoolExecutor(PLACES, "reader")
        self._lock = threading.Lock()
        self._idle: list[Reader] = []
        self._busy: set[Reader] = set()

    async def ask(self, user: str, order: dict[str, object]) -> Json:
        """Wait for a place; return a process's reply to an order. Raises ForgeError, Problem."""
        async with self._place(user):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._carry, order)

    @asynccontextmanager
    async def _place(self, user: str) -> AsyncIterator[None]:
        """Hold the user's turn and a place in the `with` block. Raises Problem 503 after `PATIENCE`."""
        turn = self._users.setdefault(user, asyncio.Lock())
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(PATIENCE):
                    await held.enter_async_context(turn)
                    await held.enter_async_context(self._places)
            except TimeoutError as error:
                detail = "Other models and data are being read: ask again later."
                raise HttpError(503, "Service Unavailable", detail, {"Retry-After": "5"}) from error
            yield

    def _carry(self, order: dict[str, object]) -> dict[str, object]:
        """Return a process's reply to the order; keep the process for the next order."""
        reader = self._take()
        try:
            reply = reader.ask(order, self._seconds)
        except BaseException:
            reader.end()
            raise
        finally:
            with self._lock:
                self._busy.discard(reader)
        with self._lock:  # the clock first: whoever takes the reader stops it
            reader.end_after(IDLE)
            self._idle.append(reader)
        return reply

    def _take(self) -> Reader:
        """Return an idle process that lives, or a new one."""
        with self._lock:
            while self._idle:
                reader = self._idle.pop()
                if reader.kept():
                    break
            else:
                reader = Reader(self._env)
            self._busy.add(reader)
            return reader

    def stop(self) -> None:
        """End the processes."""
        with self._lock:
            for reader in self._idle:
                reader.end()
            for reader in self._busy:
                reader.kill()
            self._idle.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)


class Reader:
    """One reading process."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "agent_forge.worker.devices.reading_process"],
            env=dict(env),
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._clock: threading.Timer | None = None
        self._killed = False

    def ask(self, order: dict[str, object], seconds: float) -> Json:
        """Return the process's reply. Raises ForgeError if it dies, Problem if it takes too long."""
        assert self._process.stdin
        assert self._process.stdout
        self.end_after(seconds)
        line = b""
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        self._stop_clock()
        if line.endswith(b"\n"):
            return json.loads(line)
        if self._killed:
            detail = f"Reading these models and data took longer than {seconds:g} s: it was ended."
            raise HttpError(422, UNPROCESSABLE, detail)
        raise _death(self._process.wait())

    def end_after(self, seconds: float) -> None:
        """Kill the process after `seconds`, unless `kept` or a later `end_after` stops the clock."""
        self._stop_clock()
        self._clock = threading.Timer(seconds, self.kill)
        self._clock.daemon = True
        self._clock.start()

    def kept(self) -> bool:
        """Stop the clock; return True if the process lives; else end it and return False."""
        self._stop_clock()
        if not self._killed and self._process.poll() is None:
            return True
        self.end()
        return False

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()

    def kill(self) -> None:
        """Kill the process and its children; a thread that waits for the answer sees the pipe's end."""
        self._killed = True
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the process and close its pipes; for a process whose answer no thread waits for."""
        self._stop_clock()
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _death(code: int) -> errors.ForgeError:
    """Return the error for a reading process that has ended by itself with an exit code."""
    if code == -signal.SIGBUS:
        return errors.SourceError(
            "a file became shorter while it was read. Wait until it is written, then ask again."
        )
    log.error("a process that read models or data ended with %d", code)
    return errors.UnavailableError(
        "the process that read the models and data has died, perhaps for want of memory. The "
        "server's own log says more."
    )


#: Seconds in which a failure answers further requests, too.
REMEMBERED = 60.0
#: Jobs of one kind, running or waiting, at most.
WAITING = 16
#: Jobs of one kind and one user, running or waiting, at most.
WAITING_OF_USER = 4
#: Seconds that one job may take.
LONGEST = 3600.0
#: Jobs that are remembered.
KEPT = 256


@dataclass
class Job:
    """One background job: a process that waits, runs or has ended."""

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
        """Return the seconds since the job ended; 0 if it has not ended."""
        return 0.0 if self.ended is None else time.monotonic() - self.ended


class Work:
    """Background jobs by name. The first word of a name is the job's kind."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        #: One at a time of each kind: who exports does not wait for who looks.
        self._lanes: dict[str, asyncio.Semaphore] = {}

    async def begin(
        self, name: str, command: list[str], again: bool = False, text: str = "", by: str = ""
    ) -> bool:
        """Start a job, but none that runs or, unless `again`, has just failed; return True if started.

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
            raise HttpError(503, "Service Unavailable", detail, {"Retry-After": "30"})
        lane = self._lanes.setdefault(kind, asyncio.Semaphore(1))
        job = self._jobs[name] = Job(by)
        self._jobs.move_to_end(name)
        job.task = asyncio.create_task(self._carry(job, lane, command, text))
        ended = [n for n, j in self._jobs.items() if j.ended is not None]
        for old in ended[: max(0, len(self._jobs) - KEPT)]:
            del self._jobs[old]
        return True

    async def _carry(self, job: Job, lane: asyncio.Semaphore, command: list[str], text: str) -> None:
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
        """Return the last line that a job's process has written.

        The job is started, unless it runs or its outcome is known. A result is known as long as its
        `mark` is the one that it had when it was first given; the mark None means no result. A failure
        is known for `REMEMBERED` seconds after it was first given. So a request for several outcomes
        ends, however long they take together and however seldom it is made.

        Raise Problem 503 if the job takes longer than `patience` seconds: it goes on, and a repeated
        request gets its line. `what` names the result in that error. Raise Problem 503 if too many
        jobs of the user `by` wait, Problem 422 if the process failed.
        """
        job = self._jobs.get(name)
        if job is None or await asyncio.to_thread(_forgotten, job, mark):
            await self.begin(name, command, again=True, text=text, by=by)
        job = self._jobs[name]
        self._jobs.move_to_end(name)
        assert job.task
        await asyncio.wait([job.task], timeout=patience)
        if job.ended is None:
            raise HttpError(503, "Service Unavailable", _progress(job, what), {"Retry-After": "2"})
        if job.given is None:
            job.mark = await asyncio.to_thread(mark, job.told)
            job.given = time.monotonic()
        if job.error:
            raise HttpError(422, UNPROCESSABLE, job.error)
        return job.told

    def status(self, name: str) -> str:
        """Return a job's status: "none", "running", "done" or "failed"."""
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
        """End all jobs, and wait for their ends."""
        tasks = [job.task for job in self._jobs.values() if job.task and not job.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _forgotten(job: Job, mark: Callable[[str], Hashable]) -> bool:
    """Return True if a job's given failure is too old, or its result has changed, to be given again."""
    if job.given is None:
        return False
    if job.error:
        return time.monotonic() - job.given >= REMEMBERED
    now = mark(job.told)
    return now is None or now != job.mark


def _progress(job: Job, what: str) -> str:
    """Return a sentence on what a job that has not ended does, and for how long already."""
    now = time.monotonic()
    if job.started is None:
        waited = now - job.requested
        return f"Waiting to read {what}, after other models: {waited:.0f} s so far. Ask again."
    return f"Reading {what}, or building it: {now - job.started:.0f} s so far. Ask again."
