"""Repetitions of a line with several seeds, summed up: their median, and a band over all. Pure.

The page does the same (`dashboard/src/charts/seeds.ts`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from runs.panels.panels import Series


def groups(series: Iterable[Series]) -> dict[tuple[str, str], list[Series]]:
    """Return (name, role) → the lines that are repetitions of one another, in their order."""
    series_by_name: dict[tuple[str, str], list[Series]] = {}
    for line in series:
        series_by_name.setdefault((line.name, line.role), []).append(line)
    return series_by_name


def summary(seeds: Sequence[Series]) -> Series | None:
    """Return the median over seeds, with a band from the least to the greatest; None for one seed.

    Between two of its points a seed lies on the straight line, because thinned lines have points at
    different places. At a gap and outside of its ends a seed has no value, and the others are summed
    up. None, too, if the places of a seed do not ascend.
    """
    if len(seeds) < 2 or any(a >= b for line in seeds for a, b in pairwise(line.x)):
        return None
    places = sorted({place for line in seeds for place in line.x})
    columns = [[v for line in seeds if (v := _at(line, place)) is not None] for place in places]
    return Series(
        name=seeds[0].name,
        role=seeds[0].role,
        x=tuple(places),
        y=tuple(median(values) if values else None for values in columns),
        low=tuple(min(values, default=None) for values in columns),
        high=tuple(max(values, default=None) for values in columns),
    )


def _at(series: Series, place: float) -> float | None:
    """Return a line's value at a place; None where it has none."""
    index = bisect_left(series.x, place)
    if index == len(series.x):
        return None
    if series.x[index] == place:
        return series.y[index]
    if index == 0:
        return None
    (a, b), (low, high) = series.x[index - 1 : index + 1], series.y[index - 1 : index + 1]
    if low is None or high is None:
        return None
    return low + (high - low) * (place - a) / (b - a)
