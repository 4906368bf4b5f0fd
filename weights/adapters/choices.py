"""Methods that combine several adapters into one: their names and parameters. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agent_forge.runs.errors import ConfigError

#: Methods that merge tensors.
PLAIN = ("linear", "ties", "dare_linear", "dare_ties", "magnitude_prune")
#: All methods; all but `cat`, `svd` and the last four need adapters of one rank.
COMBINATIONS = ("svd", "cat", *PLAIN, *(f"{name}_svd" for name in PLAIN[1:]))


@dataclass(frozen=True)
class Combination:
    """A method of `COMBINATIONS` with its parameters."""

    name: str
    #: Share of the numbers that is kept; None for methods that drop nothing.
    density: float | None = None
    #: Rank of the result of `svd` and `…_svd`; None: the largest of the adapters.
    rank: int | None = None
    #: How `ties` elects a sign: by the sum of the values, or of their signs.
    sign: str = "total"
    #: Key of random masks.
    seed: int = 0

    def check(self, weights: Sequence[float], adapters: int) -> None:
        """Raise ConfigError for bad weights, and for parameters that are missing or without use."""
        drops = self.name not in ("cat", "svd", "linear")
        if len(weights) != adapters:
            raise ConfigError(f"{adapters} adapters need as many weights, not {len(weights)}.")
        if not all(map(math.isfinite, weights)):
            raise ConfigError("a weight of an adapter is no finite number.")
        if drops and self.density is None:
            raise ConfigError(f"{self.name} needs a density: --density 0.5, for example.")
        if not drops and self.density is not None:
            raise ConfigError(f"{self.name} drops nothing: leave out --density.")
        if self.density is not None and not 0 < self.density <= 1:
            raise ConfigError(f"a density of {self.density:g} is not above 0 and at most 1.")
        if self.rank is not None and not self.name.endswith("svd"):
            raise ConfigError(f"{self.name} has the rank that the adapters give: leave out --rank.")
        if self.sign != "total" and "ties" not in self.name:
            raise ConfigError(f"{self.name} elects no signs: leave out --sign.")
