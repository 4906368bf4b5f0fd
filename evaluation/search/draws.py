"""Random numbers of a search, from keys."""

from __future__ import annotations

from weights import randomness


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
