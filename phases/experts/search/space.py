"""The space of mixtures: a factor for each further model and each expert. Pure.

A point in [0, 1]ⁿ has a gene for each part. A part whose factor is small is left out, so that a search
can find mixtures of few parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from evaluation.search.gene import Gene
from phases.experts.events import Factors

#: Bounds of a factor: as those of a source's weight in a merge.
BOUNDS = (-0.5, 1.5)
#: A factor below this, by magnitude, is 0.
SMALL = 0.05


@dataclass(frozen=True)
class Space:
    """Mixtures of `models` further models and of the `experts`, by domain."""

    models: int
    experts: tuple[str, ...]
    #: True if mixtures have no experts: their factors stay 0.
    bare: bool = False

    @property
    def parts(self) -> int:
        """The number of factors."""
        return self.models + len(self.experts)

    @property
    def free(self) -> int:
        """The number of factors that are searched: the first ones."""
        return self.models if self.bare else self.parts

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts, in the order of the factors."""
        return (*(f"model {n + 1}" for n in range(self.models)), *self.experts)

    @cached_property
    def genes(self) -> tuple[Gene, ...]:
        """The genes of a point."""
        return tuple(Gene(name, None, *BOUNDS, 0.0) for name in self.names[: self.free])

    def factors(self, point: Sequence[float]) -> Factors:
        """Return the factors of a point in [0, 1]ⁿ, n = `free`."""
        values = [gene.value(x) for gene, x in zip(self.genes, point, strict=True)]
        return self.snapped(values)

    def snapped(self, values: Sequence[float]) -> Factors:
        """Return factors with small ones at 0, and with those that are not searched."""
        factors = [0.0 if abs(value) < SMALL else round(value, 6) for value in values]
        return (*factors, *[0.0] * (self.parts - len(factors)))

    def point(self, factors: Factors) -> list[float]:
        """Return the point of factors."""
        return [gene.place(f) for gene, f in zip(self.genes, factors[: self.free], strict=True)]
