"""Pareto dominance, fronts, crowding distance and hypervolume of objectives to maximise.

Pure. Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II": fast
non-dominated sorting (section III A), crowding distance (III B). Hypervolume by slices (Fonseca et
al. 2006 describe faster ways; fronts here have some dozen points).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = Sequence[float]


def dominates(a: Point, b: Point) -> bool:
    """Return True if `a` is at least as large in every objective and larger in one."""
    return all(x >= y for x, y in zip(a, b, strict=True)) and any(
        x > y for x, y in zip(a, b, strict=True)
    )


def fronts(points: Sequence[Point]) -> list[list[int]]:
    """Return the points' indices, front by front; no point dominates one of the first front."""
    left, layers = list(range(len(points))), []
    while left:
        front = [i for i in left if not any(dominates(points[j], points[i]) for j in left)]
        layers.append(front)
        left = [i for i in left if i not in set(front)]
    return layers


def crowding(points: Sequence[Point]) -> list[float]:
    """Return each point's crowding distance; infinite at the ends of an objective.

    The distance between a point's two neighbours in an objective, relative to the objective's
    range, is summed over objectives.
    """
    count = len(points)
    distance = [0.0] * count
    for objective in range(len(points[0]) if points else 0):
        order = sorted(range(count), key=lambda i: points[i][objective])
        low, high = points[order[0]][objective], points[order[-1]][objective]
        distance[order[0]] = distance[order[-1]] = math.inf
        if high > low:
            for before, i, after in zip(order, order[1:], order[2:], strict=False):
                gap = points[after][objective] - points[before][objective]
                distance[i] += gap / (high - low)
    return distance


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Return the volume that the points dominate above a reference point."""
    above = [tuple(p) for p in points if all(x > r for x, r in zip(p, reference, strict=True))]
    return _volume(sorted(set(above), reverse=True), tuple(reference))


def _volume(points: list[tuple[float, ...]], reference: tuple[float, ...]) -> float:
    if not points:
        return 0.0
    if len(reference) == 1:
        return max(p[0] for p in points) - reference[0]
    total, order = 0.0, sorted(points, key=lambda p: p[-1], reverse=True)
    for i, point in enumerate(order):
        below = order[i + 1][-1] if i + 1 < len(order) else reference[-1]
        if point[-1] > below:
            total += (point[-1] - below) * _volume([p[:-1] for p in order[: i + 1]], reference[:-1])
    return total
