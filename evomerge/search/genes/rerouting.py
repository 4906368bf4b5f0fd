"""Mutation of paths through layers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.search.draws import Draws
from evomerge.search.genes.genome import Space


def rerouted(x: Sequence[float], space: Space, draws: Draws) -> list[float]:
    """Return `x` with, on average, one place of its path drawn again.

    Small steps would rarely change a place's category. Without paths `x` is not changed.
    """
    if space.paths is None:
        return list(x)
    child, first = list(x), space.merging
    for place in range(first, len(x), 2):
        touched, value = draws.chance(2 / space.paths.dimension), draws.uniform()
        child[place] = value if touched else child[place]
    return child
