"""Objectives of a mixture, from what was recorded of it; which are preferred, and given up. Pure.

All are told relative to the given model on the same windows, to be maximised: for every domain −(bits
per byte over the given model's), the neutral one among them (drift), and −(share of the parts that it
has).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluation.search.hypervolume import hypervolume
from phases.experts.events import Factors
from phases.experts.settings import ExpertsConfig
from studies.observing import Observed

#: Domain → Σ −log p of its windows.
Items = Mapping[str, Sequence[float]]

#: A domain's ratio beyond which a point adds nothing to the hypervolume.
WORST = 1.05
#: Objectives that a hypervolume is computed of.
MOST = 5


def ratios(items: Items, base: Observed, windows: int | None = None) -> dict[str, float]:
    """Return domain → −log p over the given model's, on the first `windows` of both; None: on all."""
    return {
        domain: math.fsum(items[domain][:windows]) / math.fsum(base.items[domain][:windows])
        for domain in sorted(base.items)
    }


def whole(items: Items, base: Observed) -> bool:
    """Return True if a mixture was measured on all windows, and gave finite numbers."""
    return all(len(items.get(domain, ())) == len(losses) for domain, losses in base.items.items())


def objectives(items: Items, factors: Factors, base: Observed) -> tuple[float, ...]:
    """Return the objectives of a mixture that was measured on all windows."""
    used = sum(factor != 0.0 for factor in factors) / len(factors)
    return (*(-ratio for ratio in ratios(items, base).values()), -used)


def mean(config: ExpertsConfig, shares: Mapping[str, float]) -> float:
    """Return the mean of ratios over the domains of experts: all but the neutral one."""
    domain_shares = [value for domain, value in shares.items() if domain != config.neutral]
    return math.fsum(domain_shares) / len(domain_shares)


def preferred(
    config: ExpertsConfig, shares_by_name: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """Return the names of models in the order in which they stand for an arm; `shares_by_name`: their ratios.

    Those within the limit of drift by the mean over domains; if there are none, all by their loss on
    neutral text.
    """
    lost = {name: shares.get(config.neutral, 1.0) for name, shares in shares_by_name.items()}
    within = [name for name in shares_by_name if lost[name] <= 1 + config.drift]
    if not within:
        return sorted(shares_by_name, key=lambda name: (lost[name], name))
    return sorted(within, key=lambda name: (mean(config, shares_by_name[name]), name))


def hopeful(point: Sequence[float]) -> bool:
    """Return True if a mixture is within `WORST` in every domain."""
    return min(point[:-1]) > -WORST


def volume(points: Sequence[Sequence[float]], parts: int) -> float:
    """Return the hypervolume of objectives of mixtures of `parts` parts.

    With more than `MOST` objectives it is that of three: the domains' mean, and cost, and the worst
    domain.
    """
    if points and len(points[0]) > MOST:
        points = [(math.fsum(p[:-1]) / len(p[:-1]), min(p[:-1]), p[-1]) for p in points]
    size = len(points[0]) if points else 1
    return hypervolume(points, (*[-WORST] * (size - 1), -1.0 - 1.0 / parts))


@dataclass(frozen=True)
class Bar:
    """A limit on the first windows, set by models before a mixture, at which it is given up."""

    #: For each of them: domain → −log p over the given model's.
    models: tuple[Mapping[str, float], ...]
    margin: float
    probe: int

    def gives_up(self, items: Items, base: Observed) -> bool:
        """Return True if one of the models is better by the margin in every domain."""
        shares = ratios(items, base, self.probe)
        return any(
            all(shares[domain] > value * (1 + self.margin) for domain, value in model.items())
            for model in self.models
        )
