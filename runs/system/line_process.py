"""A process that is asked by lines: a question in JSON to its standard input, an answer back.

Every question has a number that the answer repeats, so that a late answer is never taken for the
answer to another question. Any error ends the process: the next question needs a new process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
import weakref
from collections.abc import Sequence
from typing import Any


class Respondent:
    """A running process, which ends with this object at the latest."""

    def __init__(self, command: Sequence[str], **how: Any) -> None:
        """Start the process; `how` goes to Popen. Raises OSError."""
        self._number = 0
        process: Any = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how)
        self.process: subprocess.Popen[bytes] = process
        #: Ends the process.
        self.close = weakref.finalize(self, _end, self.process)

    @property
    def living(self) -> bool:
        """True if the process can be asked."""
        return self.close.alive and self.process.poll() is None

    def ask(self, question: object, patience: float) -> Any:
        """Return the answer, within `patience` seconds. Raise TimeoutError, OSError or ValueError."""
        return self._asked(question, patience, False)[0]

    def ask_for_bytes(self, question: object, patience: float) -> tuple[Any, bytes]:
        """Return (the answer, an object; the `size` bytes that follow it). Raise as `ask` does."""
        return self._asked(question, patience, True)

    def _asked(self, question: object, patience: float, more: bool) -> tuple[Any, bytes]:
        self._number += 1
        try:
            return self._ask(question, time.monotonic() + patience, more)
        except BaseException:
            self.close()  # the process's next answer would be to this question
            raise

    def _ask(self, question: object, deadline: float, more: bool) -> tuple[Any, bytes]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps([self._number, question]).encode() + b"\n")
        self.process.stdin.flush()
        buffer = b""
        while b"\n" not in buffer:
            buffer += self._piece(deadline)
        line, _, rest = buffer.partition(b"\n")
        number, answer = json.loads(line)
        if number != self._number:
            raise ValueError("an answer to another question")
        size = answer["size"] if more else 0
        while len(rest) < size:
            rest += self._piece(deadline)
        if len(rest) > size:
            raise ValueError("more than an answer")
        return answer, rest

    def _piece(self, deadline: float) -> bytes:
        """Return the next bytes, at least one. Raise TimeoutError, or ValueError at the end."""
        assert self.process.stdout
        left = max(0.0, deadline - time.monotonic())
        if not select.select([self.process.stdout], [], [], left)[0]:
            raise TimeoutError("no answer in time")
        piece = os.read(self.process.stdout.fileno(), 1 << 16)
        if not piece:
            raise ValueError("no answer")
        return piece


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()
