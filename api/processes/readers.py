"""Processes beside the server that open models and data: few, for a limited time.

They are `worker.devices.reading_process`. Each user has one at a time, so that large files of one
user do not keep the others out. A process that is late or dies answers its own request and no other.
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
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from agent_forge.api.options import Options
from agent_forge.api.problems import UNPROCESSABLE, Problem
from agent_forge.runs import errors
from agent_forge.runs.system.child_environment import child_environment

log = logging.getLogger(__name__)

#: Processes of a kind at once.
PLACES = 2
#: Seconds that a request waits for a place, and that a process is kept without any work.
PATIENCE = 20.0
IDLE = 300.0
#: Seconds that one picture may take.
DRAWING = 60.0


class Readers:
    """The processes, by the kind of their work."""

    def __init__(self, options: Options) -> None:
        env = dict(os.environ) if options.anywhere else child_environment("reader", hub=options.hub)
        self._lanes = {
            "check": Lane(env, options.check_seconds),
            "measure": Lane(env, options.register_seconds),
            "gguf_types": Lane(env, options.check_seconds),
            "draw": Lane(env, DRAWING),
        }
        self._lanes["draw_report"] = self._lanes["draw"]

    async def ask(self, order: str, user: str, **more: Any) -> dict[str, Any]:
        """Return what a process says to an order. Raises ForgeError, Problem."""
        reply = await self._lanes[order].ask(user, {"order": order, **more})
        if "answer" in reply:
            return reply["answer"]
        kind = getattr(errors, reply["error"], None)
        raise RuntimeError(reply["detail"]) if kind is None else kind(reply["detail"])

    def stop(self) -> None:
        """End them all."""
        for lane in set(self._lanes.values()):
            lane.stop()


class Lane:
    """Processes for one kind of work."""

    def __init__(self, env: Mapping[str, str], seconds: float) -> None:
        self._env, self._seconds = env, seconds
        self._places = asyncio.Semaphore(PLACES)
        self._users: dict[str, asyncio.Lock] = {}
        self._threads = ThreadPoolExecutor(PLACES, "reader")
        self._lock = threading.Lock()
        self._idle: list[Reader] = []
        self._busy: set[Reader] = set()

    async def ask(self, user: str, order: dict[str, Any]) -> dict[str, Any]:
        """Wait for a place, and for the answer. Raises ForgeError, Problem."""
        async with self._place(user):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._carry, order)

    @asynccontextmanager
    async def _place(self, user: str) -> AsyncIterator[None]:
        """Hold the user's turn and a place. Raises Problem 503 where others keep them for long."""
        turn = self._users.setdefault(user, asyncio.Lock())
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(PATIENCE):
                    await held.enter_async_context(turn)
                    await held.enter_async_context(self._places)
            except TimeoutError as error:
                detail = "Other models and data are being read: ask again later."
                raise Problem(503, "Service Unavailable", detail, {"Retry-After": "5"}) from error
            yield

    def _carry(self, order: dict[str, Any]) -> dict[str, Any]:
        """Have a process answer the order; keep the process for the next order."""
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
    """One process."""

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

    def ask(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Return its answer. Raises ForgeError where it dies, Problem where it takes too long."""
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
            raise Problem(422, UNPROCESSABLE, detail)
        raise _death(self._process.wait())

    def end_after(self, seconds: float) -> None:
        """Kill it then, and no sooner, unless it is kept before."""
        self._stop_clock()
        self._clock = threading.Timer(seconds, self.kill)
        self._clock.daemon = True
        self._clock.start()

    def kept(self) -> bool:
        """Stop its clock; return False if it has ended."""
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
    """Return what the death of a process that read says about what it has read."""
    if code == -signal.SIGBUS:
        return errors.SourceError(
            "a file became shorter while it was read. Wait until it is written, then ask again."
        )
    log.error("a process that read models or data ended with %d", code)
    return errors.UnavailableError(
        "the process that read the models and data has died, perhaps for want of memory. The "
        "server's own log says more."
    )
