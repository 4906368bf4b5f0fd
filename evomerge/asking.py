"""A process that is asked by lines: a question in JSON to its standard input, an answer back.

Every question has a number that the answer repeats, so that an answer which comes late is never taken
for another's. Whatever goes wrong ends the process: the next question needs a new one.
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
    """A running process; it ends with this object at the latest."""

    def __init__(self, command: Sequence[str], **how: Any) -> None:
        """Start it; `how` goes to Popen. Raises OSError."""
        self._number = 0
        process: Any = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how
        )
        self.process: subprocess.Popen[bytes] = process
        #: Ends the process.
        self.close = weakref.finalize(self, _end, self.process)

    @property
    def living(self) -> bool:
        """Whether it can be asked."""
        return self.close.alive and self.process.poll() is None

    def ask(self, question: Any, patience: float) -> Any:
        """The answer, within `patience` seconds. Raises TimeoutError, OSError or ValueError."""
        self._number += 1
        try:
            return self._ask(question, time.monotonic() + patience)
        except BaseException:
            self.close()  # its next answer would be to this question
            raise

    def _ask(self, question: Any, deadline: float) -> Any:
        process = self.process
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps([self._number, question]).encode() + b"\n")
        process.stdin.flush()
        line = b""
        while not line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([process.stdout], [], [], left)[0]:
                raise TimeoutError("no answer in time")
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                raise ValueError("no answer")
            line += piece
        number, answer = json.loads(line)
        if number != self._number:
            raise ValueError("an answer to another question")
        return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()
