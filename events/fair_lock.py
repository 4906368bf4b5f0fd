"""Writers of one file take turns.

SQLite's own waiting is a sleep that grows, so a busy writer starves the others (one of eight got a
single append in four seconds). Here a writer waits for the `gate`, then for the `room`, and leaves the
gate when it is in the room: whoever has just left the room finds the next one holding the gate, and
cannot be first again. Locks of files that the kernel drops with their process. The files are the
user's alone: another user's lock would hold everybody up.

It is a courtesy, not a lock: SQLite's own decides who writes. So nobody waits for good here:
whoever has waited too long (somebody was stopped in the room) goes on to SQLite, whose own waiting ends
in an error.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Descriptors of the gate and the room; None where no such file can be made.
_Files = tuple[int | None, int | None]


class Turnstile:
    """Turns among processes and threads that know the same file."""

    #: Seconds that anybody waits for a turn.
    patience = 10.0

    def __init__(self, path: Path) -> None:
        self._gate = Path(f"{path}-gate")
        self._room = Path(f"{path}-room")
        #: Opened, and with nobody now; the process that opened them, because a fork shares its locks.
        self._idle: list[_Files] = []
        self._process = os.getpid()
        #: Somebody of ours gave up, and still stands in the queue: the others do not wait until then.
        self._given_up: threading.Thread | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn and hold it. Where none is to be had, everybody's turn is now."""
        if self._given_up is not None and self._given_up.is_alive():
            yield
            return
        files = gate, room = self._take()
        try:
            if gate is not None and room is not None and not _walk_in(gate, room):
                queuing = _Queuing(gate, room)
                queuing.start()
                files = ()  # it closes them where we do not take them
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


def _walk_in(gate: int, room: int) -> bool:
    """Whether nobody is there: the room is ours then. Where only the room is taken, the gate is."""
    try:
        fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(room, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(gate, fcntl.LOCK_UN)
    return True


class _Queuing(threading.Thread):
    """Stands in the queue: the kernel's waiting for a lock is fair, and knows no time limit."""

    def __init__(self, gate: int, room: int) -> None:
        super().__init__(name="turnstile", daemon=True)
        self._files = gate, room
        self._mutex = threading.Lock()
        self._in = threading.Event()
        self._left = False

    def served(self, seconds: float) -> bool:
        """Whether our turn came within this time. If not, or at an exception, the files get closed."""
        came = False
        try:
            came = self._in.wait(seconds)
        finally:
            with self._mutex:
                self._left = not came
                if self._left and self._in.is_set():  # a moment too late
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
