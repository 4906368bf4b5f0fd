"""Dispatch: a mixture of experts for each domain, found from a few windows. Pure.

The cross-entropy method (`weights.training.cross_entropy`) searches the factors of the experts. It
begins at their mean; its points come from keys, so that the recorded losses say how it ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phases.experts.events import Factors, Fit, Fitted, Routed
from phases.experts.settings import ExpertsConfig
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


def follow(config: ExpertsConfig, candidates: Sequence[Factors], losses: Sequence[float]) -> Normal:
    """Return the distribution after a round."""
    return cross_entropy.followed(candidates, losses, config.points // SHARE, LEAST)


def factors(
    config: ExpertsConfig, domain: str, experts: int, losses: Sequence[Sequence[float]]
) -> Factors:
    """Return the factors that recorded losses lead to: the mean after the last round."""
    normal = begin(experts)
    for number, row in enumerate(losses):
        normal = follow(config, points(config, domain, number, normal), row)
    return normal.mean


def wrong_fit(config: ExpertsConfig, experts: int, task: Fit, event: Fitted) -> str | None:
    """Return why a mixture does not answer the task; None if it does. For the audit."""
    if event.domain != task.domain:
        return "a mixture was found for another domain than was asked for"
    if [len(row) for row in event.losses] != [config.points] * config.rounds:
        return "it has another number of losses than rounds have points"
    followed = factors(config, task.domain, experts, event.losses)
    return None if followed == event.factors else "its factors do not follow from its losses"


def wrong_routes(experts: int, event: Routed) -> str | None:
    """Return why choices of experts do not answer the task; None if they do. For the audit."""
    parts: Sequence[Mapping[str, Sequence[float]]] = (event.items, event.given, event.sizes)
    counts = {domain: len(choices) for domain, choices in event.choices.items()}
    if any({domain: len(numbers) for domain, numbers in part.items()} != counts for part in parts):
        return "its choices, items and sizes are not of the same windows"
    if any(choice > experts for choices in event.choices.values() for choice in choices):
        return "an expert was chosen that there is not"
    return None
