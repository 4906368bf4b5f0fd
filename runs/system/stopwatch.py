"""Timing of a piece of work, for estimates."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds beyond which a piece of work is not done a second time.
PATIENCE = 15.0


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a piece of work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def least(work: Callable[[], object]) -> float:
    """Return the seconds that a piece of work takes; if that is short, the less of two times.

    The first time also opens files and warms caches, and other work on the machine may disturb it.
    """
    return least_of_both(work)[0]


def least_of_both(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of `least`, and the processor seconds of all threads in the same time."""
    first = _of_both(work)
    return first if first[0] > PATIENCE else min(first, _of_both(work))


def _of_both(work: Callable[[], object]) -> tuple[float, float]:
    began = time.process_time()
    return timed(work), time.process_time() - began
