"""The rule `window`: a mix by weights, with a frontier that does not stay where it is stuck. Pure.

The window of a family is its levels up to the frontier. The frontier goes up over all levels that are
passed; after `patience` segments without that it goes up by one level all the same: levels teach one
another, and a level of few items is learned by heart and never passed. It does not go down: a level of
the window that is lost has its full weight again.

A cell weighs `trickle`; one of the window, or with success in [`low`, `high`], 1 more; one that is
passed `replay` more instead. Shares are the weights over their sum.
"""

from __future__ import annotations

import math

from agent_forge.phases.curriculum.mixing.frontier_rule import (
    Frontiers,
    Measured,
    Mix,
    cell,
    cells,
    climbed,
    even,
    frontier,
    in_band,
    passed,
)
from agent_forge.phases.curriculum.recipes import Frontier
from agent_forge.phases.curriculum.settings import CurriculumConfig


def moved(
    config: CurriculumConfig, family: str, measured: Measured, before: Frontier | None
) -> Frontier:
    """Return a family's new frontier: placed, promoted, opened or held, by what was measured."""
    if before is None:
        level = climbed(config, family, measured, 1)
        return frontier(family, measured, level, level, "placed", 0)
    level, still = before.level, before.still + 1
    higher = climbed(config, family, measured, level)
    if higher > level:
        return frontier(family, measured, higher, level, "promoted", 0)
    if still >= config.patience and level < config.levels:
        return frontier(family, measured, level + 1, level, "opened", 0)
    return frontier(family, measured, level, level, "held", still)


def mix(config: CurriculumConfig, measured: Measured, frontiers: Frontiers) -> Mix:
    """Return cell → share of the next mix, by success and frontiers; the shares add up to 1."""
    weights = {
        cell(family, level): _weight(config, family, measured, level, at.level)
        for family, at in sorted(frontiers.items())
        for level in range(1, config.levels + 1)
    }
    total = math.fsum(weights.values())
    if not total:
        return even(cells(config))
    return {name: weight / total for name, weight in weights.items() if weight}


def _weight(config: CurriculumConfig, family: str, measured: Measured, level: int, top: int) -> float:
    """Return a cell's weight: `trickle`, plus `replay` if passed, or 1 if up to `top` or in band."""
    if passed(config, family, measured, level):
        return config.trickle + config.replay
    return config.trickle + (level <= top or in_band(config, family, measured, level))
