"""The parent's side of a device's process: start the process, send it tasks, end it."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
from typing import Any

from runs.system.child_environment import child_environment
from runs.system.linked_processes import tied


class Process:
    """A device's process (`worker.devices.child_main`), spawned, so that CUDA is never forked."""

    def __init__(self, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            tied([sys.executable, "-m", "worker.devices.child_main"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**child_environment("device"), **env},
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        #: Number of tasks that the process was sent.
        self.tasks = 0

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def living(self) -> bool:
        """Return True if the process has not ended."""
        return self._process.poll() is None

    def tell(self, order: dict[str, Any]) -> None:
        """Send the process a task.

        Raises BrokenPipeError if the process has died: it never received the task.
        """
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self.tasks += 1

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """Return the process's next line as JSON, or None if none comes within `seconds`.

        Raises EOFError if the process has died.
        """
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return None
        if line is None or not line.endswith("\n"):
            self._lines.put(None)
            raise EOFError
        return json.loads(line)

    def end(self) -> str:
        """Kill the process if it lives, and return in words how it ended."""
        self._process.kill()
        code = self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if code < 0:
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
        return f"ended with exit code {code}"

    def wait(self) -> str:
        """Return in words how a process ended that has died or closed its output.

        A process that still lives after 5 seconds is killed.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):  # it closed its output and lives on
            self._process.wait(5)
        return self.end()
