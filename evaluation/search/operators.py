"""Crossover and mutation of points in [0, 1]ⁿ.

Pure: every random number comes from the draws given. Simulated binary crossover: Deb & Agrawal
1995; polynomial mutation: Deb & Goyal 1996; both bounded by clipping. Blended crossover: a random
place between the parents (Eshelman & Schaffer 1993, BLX-0).

Random numbers of a search, from keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_forge.weights import randomness

#: Distribution indices of NSGA-II's own experiments (Deb et al. 2002, section V).
ETA_CROSSOVER, ETA_MUTATION = 15.0, 20.0
CROSSOVER = 0.9


def clipped(x: float) -> float:
    """Return `x` clipped to [0, 1]."""
    return min(1.0, max(0.0, x))


def layer_wise(
    a: Sequence[float], b: Sequence[float], sizes: Sequence[int], draws: Draws
) -> list[float]:
    """Return a child that takes each cell whole from one of the two parents.

    `sizes` holds the number of genes of each cell.
    """
    child: list[float] = []
    for size in sizes:
        child += (a if draws.chance(0.5) else b)[len(child) : len(child) + size]
    return child


def blended(a: Sequence[float], b: Sequence[float], draws: Draws) -> list[float]:
    """Return a random point on the line between the two parents."""
    share = draws.uniform()
    return [x + share * (y - x) for x, y in zip(a, b, strict=True)]


def binary(a: Sequence[float], b: Sequence[float], draws: Draws) -> list[float]:
    """Return one child of simulated binary crossover.

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
    """Return `x` after polynomial mutation of one gene on average."""
    child = []
    for value in x:
        touched, u = draws.chance(1 / len(x)), draws.uniform()
        step = (2 * u) ** (1 / (ETA_MUTATION + 1)) - 1
        if u >= 0.5:
            step = 1 - (2 * (1 - u)) ** (1 / (ETA_MUTATION + 1))
        child.append(clipped(value + step) if touched else value)
    return child


def gaussian(x: Sequence[float], sigma: float, draws: Draws) -> list[float]:
    """Return `x` with every gene moved by a normal step of standard deviation `sigma`."""
    return [clipped(value + sigma * draws.normal()) for value in x]


class Draws:
    """Random numbers for one purpose, taken in order; each mutation creates its own from its key.

    `count` is the number of uniform draws, and of normal draws, that are available.
    """

    def __init__(self, *key: str | int, count: int = 64) -> None:
        self._uniform = iter(randomness.uniform(count, *key, "uniform").tolist())
        self._normal = iter(randomness.gaussian(count, *key, "normal").tolist())

    def normal(self) -> float:
        """Return a standard normal number."""
        return next(self._normal)

    def uniform(self) -> float:
        """Return a uniform number in (0, 1)."""
        return next(self._uniform)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return next(self._uniform) < probability

    def below(self, count: int) -> int:
        """Return a uniform integer from 0 to count − 1."""
        return min(int(next(self._uniform) * count), count - 1)
