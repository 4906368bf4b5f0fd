"""Plateau detector: the slope of the moving average of a cycle's scores. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def averages(scores: Sequence[float], smoothing: int) -> list[float]:
    """Return for each score the mean of it and up to `smoothing` − 1 scores before it."""
    found = []
    for end in range(1, len(scores) + 1):
        some = scores[max(0, end - smoothing) : end]
        found.append(sum(some) / len(some))
    return found


def slope(values: Sequence[float]) -> float:
    """Return the least-squares slope of two or more values at 0, 1, 2, …"""
    middle = (len(values) - 1) / 2
    spread = sum((at - middle) ** 2 for at in range(len(values)))
    return sum((at - middle) * value for at, value in enumerate(values)) / spread


def found(scores: Sequence[float], smoothing: int, window: int) -> float | None:
    """Return the slope over the last `window` moving averages; None as long as there are fewer."""
    smooth = averages(scores, smoothing)
    return slope(smooth[-window:]) if len(smooth) >= window else None
