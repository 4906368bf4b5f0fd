"""Times, durations and sizes in words, and timing of a piece of work, for reports and estimates."""

from __future__ import annotations

import time
from collections.abc import Callable


def duration(seconds: float) -> str:
    """Return seconds as "1 h 02 min", "3 min 04 s" or "5.6 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{seconds:.1f} s"


def rough(seconds: float) -> str:
    """Return seconds in their largest unit, rounded down: "12 min", "3 h", "5 d"."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length):,} {unit}"
    return f"{max(0, int(seconds))} s"


def day(recorded_at: str) -> str:
    """Return a recorded time as "2026-11-28 at 09:30 UTC"."""
    return recorded_at[:16].replace("T", " at ") + " UTC"


def size(count: float) -> str:
    """Return bytes as "1.20 GiB", "34.5 MiB" or "678 B", as the page does."""
    power = min(3, (int(count).bit_length() - 1) // 10) if count >= 1 else 0
    number = count / 1024**power
    return f"{number:,.{(1 + (number < 10)) if power else 0}f} {('B', 'KiB', 'MiB', 'GiB')[power]}"


#: Seconds beyond which a piece of work is not done a second time.
PATIENCE = 15.0


def timed(work: Callable[[], object]) -> float:
    """Do a piece of work; return the seconds that it took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def least(work: Callable[[], object]) -> float:
    """Do a piece of work, and again if it was short; return the seconds of the faster time.

    The first time also opens files and warms caches, and other work on the machine may disturb it.
    """
    return least_of_both(work)[0]


def least_of_both(work: Callable[[], object]) -> tuple[float, float]:
    """Work as `least` does; return (its seconds, processor seconds of all threads in that time)."""
    first = _of_both(work)
    return first if first[0] > PATIENCE else min(first, _of_both(work))


def _of_both(work: Callable[[], object]) -> tuple[float, float]:
    began = time.process_time()
    return timed(work), time.process_time() - began
