"""Cross-entropy method: a normal distribution that follows the best of its points.

Rubinstein & Kroese 2004, "The Cross-Entropy Method", for continuous optimisation. Each round draws
points from independent normal distributions. The next mean and deviation are those of the best points
(the elite). It suits a handful of numbers: with thousands it fits the noise of a small sample. Pure:
points come from keys, and a distribution follows from the recorded values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agent_forge.weights import randomness

#: Decimals of a drawn number, so that the recorded number is the measured one.
DIGITS = 6


@dataclass(frozen=True)
class Normal:
    """Independent normal distributions, one for each number, by means and standard deviations."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def drawn(normal: Normal, count: int, *key: str | int) -> list[tuple[float, ...]]:
    """Return a list of `count` tuples: the mean, then points drawn by `key`, rounded to `DIGITS`."""
    n = len(normal.mean)
    noise = randomness.gaussian((count - 1) * n, *key).reshape(count - 1, n).tolist()
    pairs = list(zip(normal.mean, normal.deviation, strict=True))
    rest = [[m + d * z for (m, d), z in zip(pairs, row, strict=True)] for row in noise]
    return [tuple(round(x, DIGITS) for x in point) for point in (normal.mean, *rest)]


def followed(
    points: Sequence[Sequence[float]], losses: Sequence[float], elite: int, least: float
) -> Normal:
    """Return the Normal of the `elite` points with the smallest losses, the earlier of equals.

    A deviation is at least `least`. Raises ValueError for an elite below 1 or above the points' number.
    """
    if not 1 <= elite <= len(points):
        raise ValueError(f"the best {elite} of {len(points)} points cannot be taken")
    best = sorted(range(len(points)), key=lambda i: (losses[i], i))[:elite]
    columns = list(zip(*(points[i] for i in best), strict=True))
    mean = [math.fsum(column) / elite for column in columns]
    spread = [
        math.sqrt(math.fsum((x - m) ** 2 for x in column) / elite)
        for column, m in zip(columns, mean, strict=True)
    ]
    return Normal(
        tuple(round(m, DIGITS) for m in mean), tuple(round(max(least, d), DIGITS) for d in spread)
    )
