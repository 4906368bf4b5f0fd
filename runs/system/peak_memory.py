"""Most private memory of this process during some work, sampled by a thread.

Private memory is RssAnon of /proc: memory-mapped weights, which the kernel can drop, do not count.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

#: Seconds between two looks.
PERIOD = 0.1


def private() -> int:
    """Return the bytes of this process's private memory now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon:")).split()[1]) << 10


class PeakMemory:
    """Context manager; afterwards `bytes` is the most private memory that the process had within."""

    def __init__(self) -> None:
        """Start with no memory; looks begin when the block does."""
        self.bytes, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _look(self) -> None:
        self.bytes = max(self.bytes, private())

    def _watch(self) -> None:
        while not self._over.wait(PERIOD):
            self._look()
