"""Selection of NSGA-II: who survives a generation, and who is bred from.

Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II", section III. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evaluation.search import pareto
from evaluation.search.draws import Draws
from evaluation.search.pareto import Point


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
    for number, front in enumerate(pareto.fronts([points[i] for i in ids])):
        crowded = pareto.crowding([points[ids[i]] for i in front])
        ranked = sorted(zip(front, crowded, strict=True), key=lambda p: (-p[1], ids[p[0]]))
        ranking += [Survivor(ids[i], number, distance) for i, distance in ranked]
    return ranking


def tournament(parents: Sequence[Survivor], draws: Draws) -> str:
    """Return the better one of two parents that are drawn with replacement."""
    drawn = [draws.below(len(parents)) for _ in range(2)]
    return min((parents[i] for i in drawn), key=lambda p: (p.front, -p.crowding, p.id)).id
