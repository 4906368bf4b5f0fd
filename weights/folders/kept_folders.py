"""Folders of models that a machine keeps as a cache: locked while made, evicted by their age."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: Disk budget of all folders of one cache, in bytes; beyond it the longest unused are removed.
DISK_BYTES = 20_000_000_000
#: Seconds after its last use during which a folder is not removed.
LATELY = 3600


def evict(folder: Path, most: int, drop: Callable[[Path], None]) -> None:
    """Drop the longest unused folders of models until at most `most` bytes are left.

    A folder stays if it was used within the last hour or if a living process holds it.
    """
    folders, now = [], time.time()
    for place in folder.iterdir():
        with contextlib.suppress(OSError):  # another process just removed it
            if place.is_dir():
                size = sum(map(_share, place.iterdir()))
                folders.append((place.stat().st_mtime, place, size))
    total = sum(size for _, _, size in folders)
    for used, place, size in sorted(folders):
        if total > most and now - used > LATELY and not is_held(place):
            drop(place)
            total -= size


def _share(file: Path) -> int:
    """Return the bytes of a file, over the number of copies that it belongs to."""
    status = file.stat()
    return status.st_size // max(1, status.st_nlink)


def is_held(place: Path) -> bool:
    """Return True if a process holds the lock of a folder."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def touch(place: Path) -> None:
    """Note that a folder was used now, by its modification time."""
    with contextlib.suppress(OSError):
        os.utime(place)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold an exclusive file lock, which the kernel releases if this process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
