"""Pareto dominance, fronts, crowding distance and hypervolume of objectives to maximise.

Pure. Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II": fast
non-dominated sorting (section III A), crowding distance (III B). Hypervolume by slices (Fonseca et
al. 2006 describe faster ways; fronts here have some dozen points).

Selection of NSGA-II: who survives a generation, and who is bred from.

Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II", section III. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent_forge.evaluation.search.operators import Draws

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


class Survivor(NamedTuple):
    """A candidate in order of selection: its front from 0, and its crowding distance in it."""

    id: str
    front: int
    crowding: float


def survivors(points: Mapping[str, Point]) -> list[Survivor]:
    """Return all candidates, the better fronts first, in a front the least crowded first.

    `points` are objectives to maximise by id. Among equals the smaller id is first.
    """
    ids, ranking = list(points), list[Survivor]()
    for number, front in enumerate(fronts([points[i] for i in ids])):
        crowded = crowding([points[ids[i]] for i in front])
        ranked = sorted(zip(front, crowded, strict=True), key=lambda p: (-p[1], ids[p[0]]))
        ranking += [Survivor(ids[i], number, distance) for i, distance in ranked]
    return ranking


def tournament(parents: Sequence[Survivor], draws: Draws) -> str:
    """Return the better one of two parents that are drawn with replacement."""
    drawn = [draws.below(len(parents)) for _ in range(2)]
    return min((parents[i] for i in drawn), key=lambda p: (p.front, -p.crowding, p.id)).id
