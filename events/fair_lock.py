"""Turns for the writers of one file.

SQLite's own waiting is a sleep that grows, so a busy writer starves the others (one of eight got a
single append in four seconds). Here a writer locks the `gate`, then the `room`, and unlocks the
gate once it holds the room. A writer that has just left the room finds the next writer at the gate,
and so cannot be first again. The gate and the room are file locks, which the kernel drops with
their process. The files are open to their owner alone: another user's lock would block all writers.

A turn is a courtesy, not a lock: SQLite's own lock decides which writer writes. So no writer waits
for ever here: after `Turnstile.patience` seconds (a process was stopped in the room) the writer
goes on to SQLite, whose own waiting ends in an error.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Descriptors of the gate and the room; None if the file cannot be made.
_Files = tuple[int | None, int | None]


class Turnstile:
    """Turns among the processes and threads that write to one file."""

    #: Seconds that a writer waits for a turn.
    patience = 10.0

    def __init__(self, path: Path) -> None:
        self._gate = Path(f"{path}-gate")
        self._room = Path(f"{path}-room")
        #: Open files that no thread uses now; the process that opened them: a fork shares its
        #: locks.
        self._idle: list[_Files] = []
        self._process = os.getpid()
        #: The queuing thread of a turn that this process gave up. While the thread still waits, no
        #: other thread of the process waits for a turn.
        self._given_up: threading.Thread | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn and hold it; go on without a turn if none is to be had."""
        if self._given_up is not None and self._given_up.is_alive():
            yield
            return
        files = gate, room = self._take()
        try:
            if gate is not None and room is not None and not _walk_in(gate, room):
                queuing = _Queuing(gate, room)
                queuing.start()
                files = ()  # the thread closes them if its turn comes too late
                if queuing.served(self.patience):
                    files = gate, room
                else:
                    self._given_up = queuing
            yield
            if files and gate is not None and room is not None:
                fcntl.flock(room, fcntl.LOCK_UN)
                self._idle.append((gate, room))
                files = ()
        finally:
            _close(files)

    def _take(self) -> _Files:
        """Return descriptors that no other thread of this process uses now."""
        if self._process != os.getpid():
            self._process, self._idle = os.getpid(), []
        try:
            return self._idle.pop()
        except IndexError:
            return _open(self._gate), _open(self._room)

    def close(self) -> None:
        """Close the idle files; the next turn opens them again."""
        while self._idle:
            _close(self._idle.pop())


def _walk_in(gate: int, room: int) -> bool:
    """Return True if gate and room were free: the room is then locked, the gate is not.

    If only the room was taken, the gate stays locked.
    """
    try:
        fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(room, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(gate, fcntl.LOCK_UN)
    return True


class _Queuing(threading.Thread):
    """A thread that waits in the queue: the kernel's wait for a lock is fair but has no limit."""

    def __init__(self, gate: int, room: int) -> None:
        super().__init__(name="turnstile", daemon=True)
        self._files = gate, room
        self._mutex = threading.Lock()
        self._in = threading.Event()
        self._left = False

    def served(self, seconds: float) -> bool:
        """Return True if the turn came within `seconds`.

        If the turn did not come, or at an exception, the files get closed: now, or by the thread
        when its turn comes.
        """
        came = False
        try:
            came = self._in.wait(seconds)
        finally:
            with self._mutex:
                self._left = not came
                if self._left and self._in.is_set():  # the turn came a moment too late
                    _close(self._files)
        return came

    def run(self) -> None:
        gate, room = self._files
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX)
        fcntl.flock(gate, fcntl.LOCK_UN)
        with self._mutex:
            if self._left:
                _close(self._files)
            else:
                self._in.set()


def _close(files: _Files | tuple[()]) -> None:
    for file in files:
        if file is not None:
            os.close(file)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
