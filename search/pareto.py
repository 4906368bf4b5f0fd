"""Multi-objective search (NSGA-II): Pareto fronts, hypervolume, selection, crossover and mutation.

Pure; every random number comes from the given `Draws`. Objectives are maximised. Deb et al. 2002, "A
fast and elitist multiobjective genetic algorithm: NSGA-II": non-dominated sorting (section III A),
crowding distance (III B), selection (III). Hypervolume by slices (Fonseca et al. 2006 describe faster
ways; fronts here have some dozen points).

Points are in [0, 1]ⁿ. Simulated binary crossover: Deb & Agrawal 1995; polynomial mutation: Deb & Goyal
1996; both are bounded by clipping. Blended crossover: a random place between the parents (Eshelman &
Schaffer 1993, BLX-0).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent_forge.weights import randomness

Point = Sequence[float]


def dominates(a: Point, b: Point) -> bool:
    """Return True if `a` is at least as large in every objective and larger in one."""
    return all(x >= y for x, y in zip(a, b, strict=True)) and any(
        x > y for x, y in zip(a, b, strict=True)
    )


def fronts(points: Sequence[Point]) -> list[list[int]]:
    """Return the points' indices as lists, front by front; no point dominates one of the first."""
    left, layers = list(range(len(points))), []
    while left:
        front = [i for i in left if not any(dominates(points[j], points[i]) for j in left)]
        layers.append(front)
        left = [i for i in left if i not in set(front)]
    return layers


def crowding(points: Sequence[Point]) -> list[float]:
    """Return the crowding distance of each point, in order; infinite at the ends of an objective.

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
    """Return all candidates with front and crowding: better fronts first, then the less crowded.

    `points` are objectives to maximise by id. Among equals the smaller id is first.
    """
    ids, ranking = list(points), list[Survivor]()
    for number, front in enumerate(fronts([points[i] for i in ids])):
        crowded = crowding([points[ids[i]] for i in front])
        ranked = sorted(zip(front, crowded, strict=True), key=lambda p: (-p[1], ids[p[0]]))
        ranking += [Survivor(ids[i], number, distance) for i, distance in ranked]
    return ranking


def tournament(parents: Sequence[Survivor], draws: Draws) -> str:
    """Return the id of the better one of two parents that are drawn with replacement."""
    drawn = [draws.below(len(parents)) for _ in range(2)]
    return min((parents[i] for i in drawn), key=lambda p: (p.front, -p.crowding, p.id)).id


#: Distribution indices of NSGA-II's own experiments (Deb et al. 2002, section V).
ETA_CROSSOVER, ETA_MUTATION = 15.0, 20.0
CROSSOVER = 0.9


def clipped(x: float) -> float:
    """Return `x` clipped to [0, 1]."""
    return min(1.0, max(0.0, x))


def layer_wise(
    a: Sequence[float], b: Sequence[float], sizes: Sequence[int], draws: Draws
) -> list[float]:
    """Return a child that takes each cell, of `sizes` genes, whole from one of two parents at random.

    `sizes` holds the number of genes of each cell.
    """
    child: list[float] = []
    for size in sizes:
        child += (a if draws.chance(0.5) else b)[len(child) : len(child) + size]
    return child


def blended(a: Sequence[float], b: Sequence[float], draws: Draws) -> list[float]:
    """Return a child: a random point on the line between the two parents."""
    share = draws.uniform()
    return [x + share * (y - x) for x, y in zip(a, b, strict=True)]


def binary(a: Sequence[float], b: Sequence[float], draws: Draws) -> list[float]:
    """Return one child of simulated binary crossover, its crossed genes clipped to [0, 1].

    The child is a copy of `a` with probability 1 − CROSSOVER.
    """
    if not draws.chance(CROSSOVER):
        return list(a)
    child = []
    for x, y in zip(a, b, strict=True):
        u, crossed, first = draws.uniform(), draws.chance(0.5), draws.chance(0.5)
        spread = (2 * u if u <= 0.5 else 1 / (2 * (1 - u))) ** (1 / (ETA_CROSSOVER + 1))
        value = (
            0.5 * ((1 + spread) * x + (1 - spread) * y)
            if first
            else 0.5 * ((1 - spread) * x + (1 + spread) * y)
        )
        child.append(clipped(value) if crossed else x)
    return child


def polynomial(x: Sequence[float], draws: Draws) -> list[float]:
    """Return `x` after polynomial mutation of one gene on average, clipped to [0, 1]."""
    child = []
    for value in x:
        touched, u = draws.chance(1 / len(x)), draws.uniform()
        step = (2 * u) ** (1 / (ETA_MUTATION + 1)) - 1
        if u >= 0.5:
            step = 1 - (2 * (1 - u)) ** (1 / (ETA_MUTATION + 1))
        child.append(clipped(value + step) if touched else value)
    return child


def gaussian(x: Sequence[float], sigma: float, draws: Draws) -> list[float]:
    """Return `x` with every gene moved by a normal step of deviation `sigma`, clipped to [0, 1]."""
    return [clipped(value + sigma * draws.normal()) for value in x]


class Draws:
    """Random numbers for one purpose, taken in order; each mutation creates its own from its key.

    `count` is the number of uniform draws, and of normal draws, that are available.
    """

    def __init__(self, *key: str | int, count: int = 64) -> None:
        self._uniform = iter(randomness.uniform(count, *key, "uniform").tolist())
        self._normal = iter(randomness.gaussian(count, *key, "normal").tolist())

    def normal(self) -> float:
        """Return the next standard normal number; raise StopIteration after `count` of them."""
        return next(self._normal)

    def uniform(self) -> float:
        """Return the next uniform number in (0, 1); raise StopIteration after `count` of them."""
        return next(self._uniform)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return next(self._uniform) < probability

    def below(self, count: int) -> int:
        """Return a uniform integer from 0 to count − 1."""
        return min(int(next(self._uniform) * count), count - 1)
