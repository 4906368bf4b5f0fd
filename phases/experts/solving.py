"""Figures of tasks that models solve, for experts of families of tasks. Pure.

A task is solved if greedy decoding gives the tokens of its answer and then the end token
(`evaluation/answers.py`). Shares are means over the tasks of a family, figures means over families.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from agent_forge.evaluation.measures import bootstrap
from agent_forge.phases.experts import recipes
from agent_forge.runs.event_types import Figure
from agent_forge.studies.comparison import figure
from agent_forge.studies.events import Observed

#: The measure.
SOLVED = "exact-answers@1"
#: Figure → what it is, in words.
FIGURES = {
    "solved": "tasks solved: share of the tasks that the result solves, the mean over families",
    "solved_given": "tasks solved by the given model: their share",
    "solved_own": "more own tasks solved: share of a family's tasks that its expert solves more",
    "solved_lora": "more own tasks solved by adapters: the same of the adapters beside it",
}


def shares(observations: Mapping[str, Observed]) -> dict[str, dict[str, Figure]]:
    """Return arm → family → share of its tasks that are solved, with the interval."""
    return {
        arm: {
            family: figure(value, _drawn(event, family), len(event.items[family]))
            for family, value in event.values.items()
        }
        for arm, event in observations.items()
    }


def figures(
    families: Sequence[str], observations: Mapping[str, Observed], result: str
) -> dict[str, Figure]:
    """Return name → figure of tasks solved, of those measured; `families` are those with an expert."""
    figures_by_name = {}
    for name, arm in (("solved", result), ("solved_given", recipes.GIVEN)):
        if arm in observations and observations[arm].values:
            event = observations[arm]
            spread = np.mean([_drawn(event, family) for family in event.values], axis=0)
            point = math.fsum(event.values.values()) / len(event.values)
            figures_by_name[name] = figure(point, spread, sum(map(len, event.items.values())))
    for name, start in (("solved_own", recipes.ONLY), ("solved_lora", recipes.LORA)):
        arms = {family: f"{start}{family}" for family in families}
        if arms and set(arms.values()) <= set(observations):
            figures_by_name[name] = _more(arms, observations)
    return figures_by_name


def _more(arms: Mapping[str, str], observations: Mapping[str, Observed]) -> Figure:
    """Return as a Figure the mean share of own tasks that arms solve more than the given model."""
    base = observations[recipes.GIVEN]
    points = [observations[arm].values[family] - base.values[family] for family, arm in arms.items()]
    spread = [_drawn(observations[arm], family) - _drawn(base, family) for family, arm in arms.items()]
    count = sum(len(base.items[family]) for family in arms)
    return figure(math.fsum(points) / len(points), np.mean(spread, axis=0), count)


def _drawn(event: Observed, family: str) -> np.ndarray:
    """Return the share of a family's tasks solved in each resample, float64 [resamples]."""
    items = event.items[family]
    counts = bootstrap.draws(len(items), recipes.PURPOSE, event.on, "solved", family)
    return bootstrap.ratio(counts, items, [1.0] * len(items))
