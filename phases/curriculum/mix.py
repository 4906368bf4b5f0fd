"""The mix of an arm's next segment: what each arm trains on. Pure.

Every family has a frontier, the highest level that it is to learn now. A level is passed if success on
it is above `promote`. The rules of the arm adaptive are a file each: `window_rule.py` and
`frontier_rule.py`.
"""

from __future__ import annotations

from types import ModuleType

from phases.curriculum import frontier_rule, window_rule
from phases.curriculum.cells import Frontiers, Measured, Mix, cell, cells, even
from phases.curriculum.config import Arm, CurriculumConfig, Rule
from phases.curriculum.events import Frontier

#: Rule → where it is: `moved` and `mix`.
RULES: dict[Rule, ModuleType] = {"window": window_rule, "frontier": frontier_rule}


def choose(
    config: CurriculumConfig, arm: Arm, segment: int, measured: Measured, before: Frontiers
) -> tuple[Mix, dict[str, Frontier]]:
    """Return the mix of an arm's segment, and for `adaptive` the frontiers that it follows from.

    `before` are the frontiers of the segment before, none at the first.
    """
    if arm == "uniform":
        return even(cells(config)), {}
    if arm == "easy_to_hard":
        top = -(-(segment + 1) * config.levels // config.segments)
        levels = range(1, min(top, config.levels) + 1)
        return even([cell(f, level) for f in sorted(config.families) for level in levels]), {}
    rule = RULES[config.rule]
    found = {f: rule.moved(config, f, measured, before.get(f)) for f in sorted(config.families)}
    return rule.mix(config, measured, found), found
