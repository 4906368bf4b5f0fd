"""Dispatch: a mixture of experts for each domain, found from a few windows. Pure.

The cross-entropy method (`weights.training.cross_entropy`) searches the factors of the experts. It
begins at their mean; its points come from keys, so that the recorded losses say how it ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from phases.experts.config import ExpertsConfig
from phases.experts.events import Factors
from weights.training import cross_entropy
from weights.training.cross_entropy import Normal

#: Standard deviation of the first points, and the least one.
FIRST, LEAST = 0.5, 0.02
#: Points of a round that one is followed of.
SHARE = 4


def begin(experts: int) -> Normal:
    """Return the distribution that the search of a mixture of experts begins with."""
    return Normal((round(1 / experts, 6),) * experts, (FIRST,) * experts)


def points(config: ExpertsConfig, domain: str, number: int, normal: Normal) -> list[Factors]:
    """Return the mixtures of a round."""
    key = (config.seed, "experts", "fit", domain, number)
    return cross_entropy.drawn(normal, config.points, *key)


def follow(config: ExpertsConfig, asked: Sequence[Factors], losses: Sequence[float]) -> Normal:
    """Return the distribution after a round."""
    return cross_entropy.followed(asked, losses, config.points // SHARE, LEAST)


def factors(
    config: ExpertsConfig, domain: str, experts: int, losses: Sequence[Sequence[float]]
) -> Factors:
    """Return the factors that recorded losses lead to: the mean after the last round."""
    normal = begin(experts)
    for number, row in enumerate(losses):
        normal = follow(config, points(config, domain, number, normal), row)
    return normal.mean
