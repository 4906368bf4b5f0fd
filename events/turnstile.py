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


class Turnstile:
    """Turns among processes and threads that know the same file."""

    def __init__(self, path: Path) -> None:
        self._gate = Path(f"{path}-gate")
        self._room = Path(f"{path}-room")

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn and hold it. Where no such file can be made, everybody's turn is now."""
        gate = _open(self._gate)
        room = _open(self._room)
        try:
            if gate is not None and room is not None:
                fcntl.flock(gate, fcntl.LOCK_EX)
                fcntl.flock(room, fcntl.LOCK_EX)
                fcntl.flock(gate, fcntl.LOCK_UN)
            yield
        finally:
            for file in (gate, room):
                if file is not None:
                    os.close(file)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return None
