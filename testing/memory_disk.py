"""A folder in memory for the files of tests: a commit there does not wait for a disk.

A log syncs its file at every commit, so a run of toy models spends about a quarter of its time on the
disk. The calls are the same in memory; only the disk's wait is missing. A kill takes nothing from such
a file, as it takes nothing from one on a disk; a loss of power is simulated (`power_loss.py`).
"""

from __future__ import annotations

import os
from pathlib import Path

#: Where Linux keeps files in memory.
MEMORY = Path("/dev/shm")
#: Bytes that must be free: all tests together write about 2.4 GB.
NEEDED = 8 << 30


def folder(place: Path = MEMORY, meminfo: Path = Path("/proc/meminfo")) -> Path | None:
    """Return the folder if programs may run there and it and the memory have room; else None."""
    try:
        disk = os.statvfs(place)
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    (kib,) = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")] or (0,)
    room = min(kib * 1024, disk.f_bavail * disk.f_frsize)
    usable = os.access(place, os.W_OK | os.X_OK) and not disk.f_flag & os.ST_NOEXEC
    return place if usable and room >= NEEDED else None
