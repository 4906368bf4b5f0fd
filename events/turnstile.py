"""Writers of one file take turns.

SQLite's own waiting is a sleep that grows, so a busy writer starves the others (one of eight got a
single append in four seconds). Here a writer waits for the `gate`, then for the `room`, and leaves the
gate when it is in the room: whoever has just left the room finds the next one holding the gate, and
cannot be first again. Locks of files that the kernel drops with their process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Descriptors of the gate and the room; None where no such file can be made.
_Files = tuple[int | None, int | None]


class Turnstile:
    """Turns among processes and threads that know the same file."""

    def __init__(self, path: Path) -> None:
        self._gate = Path(f"{path}-gate")
        self._room = Path(f"{path}-room")
        #: Opened, and with nobody now; the process that opened them, because a fork shares its locks.
        self._idle: list[_Files] = []
        self._process = os.getpid()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn and hold it. Where no such file can be made, everybody's turn is now."""
        files = gate, room = self._take()
        try:
            if gate is not None and room is not None:
                fcntl.flock(gate, fcntl.LOCK_EX)
                fcntl.flock(room, fcntl.LOCK_EX)
                fcntl.flock(gate, fcntl.LOCK_UN)
            yield
            if gate is not None and room is not None:
                fcntl.flock(room, fcntl.LOCK_UN)
                self._idle.append(files)
                files = ()
        finally:
            _close(files)

    def _take(self) -> _Files:
        """Descriptors that nobody else in this process uses now."""
        if self._process != os.getpid():
            self._process, self._idle = os.getpid(), []
        try:
            return self._idle.pop()
        except IndexError:
            return _open(self._gate), _open(self._room)

    def close(self) -> None:
        """Close what is open; the next turn opens it again."""
        while self._idle:
            _close(self._idle.pop())


def _close(files: _Files | tuple[()]) -> None:
    for file in files:
        if file is not None:
            os.close(file)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return None
