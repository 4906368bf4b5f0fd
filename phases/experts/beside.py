"""Experts beside adapters: what each gains in its own domain, and what it damages in the others. Pure.

Both are trained on the same windows and have about as many numbers. An arm of a domain is compared
with the given model; the figures are means over all experts that were trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from phases.experts import recipes
from runs.event_types import Figure
from studies.observing import Observed
from studies.paired_bits import figure

#: Figure → what it is, in words.
FIGURES = {
    "own": "gain in the own domain: relative gain of an expert, the mean over experts",
    "lora_own": "gain of adapters in the own domain: relative gain of as many numbers",
    "own_over_lora": "lead over adapters: what experts gain more in their own domain",
    "damage": "loss in other domains: relative loss by an expert, the mean over experts and domains",
    "lora_damage": "loss in other domains by adapters: the same of these adapters",
    "damage_over_lora": "loss beyond that of adapters: what experts lose more in other domains",
}

#: Domain → bits per byte in each resample, [resamples].
Rates = Mapping[str, np.ndarray]
#: A value, and the value in each resample.
Spread = tuple[float, np.ndarray]


def figures(
    domains: Sequence[str], observations: Mapping[str, Observed], drawn: Mapping[str, Rates]
) -> dict[str, Figure]:
    """Return the figures of the experts of `domains`, and of the adapters beside them.

    `observations` and `drawn` map an arm to what was observed, and to its rates in the same resamples of the
    windows. Empty without experts, and without adapters.
    """
    expert_arms = {domain: f"{recipes.ONLY}{domain}" for domain in domains}
    other = {domain: f"{recipes.LORA}{domain}" for domain in domains}
    if not domains or not {*expert_arms.values(), *other.values()} <= set(observations):
        return {}
    count, figures_by_name = (
        sum(map(len, observations[recipes.GIVEN].items.values())),
        dict[str, Figure](),
    )
    both = zip(
        _both(expert_arms, observations, drawn), _both(other, observations, drawn), strict=True
    )
    for kind, (expert, adapter) in zip(("own", "damage"), both, strict=True):
        figures_by_name[kind] = figure(*expert, count)
        figures_by_name[f"lora_{kind}"] = figure(*adapter, count)
        figures_by_name[f"{kind}_over_lora"] = figure(
            expert[0] - adapter[0], expert[1] - adapter[1], count
        )
    return figures_by_name


def _both(
    arms: Mapping[str, str], observations: Mapping[str, Observed], drawn: Mapping[str, Rates]
) -> tuple[Spread, Spread]:
    """Return the mean gain of arms in their own domains, and the mean loss in all others."""
    gains, damage = list[Spread](), list[Spread]()
    base, rates = observations[recipes.GIVEN], drawn[recipes.GIVEN]
    for domain, arm in arms.items():
        for other, value in base.values.items():
            point = observations[arm].values[other] / value - 1
            spread = drawn[arm][other] / rates[other] - 1
            if other == domain:
                gains.append((-point, -spread))
            else:
                damage.append((point, spread))
    return _mean(gains), _mean(damage)


def _mean(values: Sequence[Spread]) -> Spread:
    """Return the mean of values, and of their resamples."""
    points = [point for point, _ in values]
    return math.fsum(points) / len(points), np.mean([spread for _, spread in values], axis=0)
