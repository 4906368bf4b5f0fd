"""The rule by which the next segment's mix is chosen: what each arm trains on. Pure.

Every family has a frontier: the lowest level that it has not passed. A level is passed if success on it
is above `promote`. Of a mix, `trickle` is spread over all cells, `replay` over the levels below the
frontiers, and the rest over the families, each on its frontier and on all its levels with success in
[`low`, `high`], the edge of chaos. A family that passes its highest level needs no more of the rest. A
family whose frontier has not moved for `patience` segments gets `cap` of what it would have had: on a
plateau it would only take tokens from the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from phases.curriculum.config import EVIDENCE, Arm, CurriculumConfig
from phases.curriculum.events import Frontier

#: Cell ("FAMILY/LEVEL") → share of the items.
Mix = dict[str, float]


@dataclass(frozen=True)
class Success:
    """Success on the items of a cell."""

    rate: float
    items: int


#: Cell → success; a cell that was not measured is missing.
Measured = Mapping[str, Success]
Frontiers = Mapping[str, Frontier]


def cell(family: str, level: int) -> str:
    """Return the name of a cell."""
    return f"{family}/{level}"


def cells(config: CurriculumConfig) -> list[str]:
    """Return all cells, sorted by family and level."""
    levels = range(1, config.levels + 1)
    return [cell(family, level) for family in sorted(config.families) for level in levels]


def choose(
    config: CurriculumConfig, arm: Arm, segment: int, measured: Measured, before: Frontiers
) -> tuple[Mix, dict[str, Frontier]]:
    """Return the mix of an arm's segment, and for `adaptive` the frontiers that it follows from.

    `before` are the frontiers of the segment before, none at the first.
    """
    if arm == "uniform":
        return _even(cells(config)), {}
    if arm == "easy_to_hard":
        top = -(-(segment + 1) * config.levels // config.segments)
        levels = range(1, min(top, config.levels) + 1)
        return _even([cell(f, level) for f in sorted(config.families) for level in levels]), {}
    found = {f: frontier(config, f, measured, before.get(f)) for f in sorted(config.families)}
    return adaptive(config, measured, found), found


# ---- frontiers ---------------------------------------------------------------------------------


def frontier(
    config: CurriculumConfig, family: str, measured: Measured, before: Frontier | None
) -> Frontier:
    """Return a family's frontier by what was measured, and why it is there."""
    if before is None:
        level = _climbed(config, family, measured, 1)
        return _frontier(family, measured, level, level, "placed", 0)
    level = before.level
    below = _known(measured, family, level - 1)
    if below is not None and below.rate < config.demote:
        return _frontier(family, measured, level - 1, level - 1, "demoted", 0)
    climbed = _climbed(config, family, measured, level)
    if climbed > level:
        return _frontier(family, measured, climbed, level, "promoted", 0)
    return _frontier(family, measured, level, level, "held", before.still + 1)


def _frontier(
    family: str, measured: Measured, level: int, by: int, change: str, still: int
) -> Frontier:
    """Return a frontier that follows from success on the level `by`."""
    found = measured.get(cell(family, by), Success(0.0, 0))
    fields = {"level": level, "change": change, "by": by, "still": still}
    return Frontier.model_validate({**fields, "success": found.rate, "items": found.items})


def _climbed(config: CurriculumConfig, family: str, measured: Measured, level: int) -> int:
    """Return the first level from `level` on that is not passed; the highest if all are."""
    while level < config.levels and _passed(config, family, measured, level):
        level += 1
    return level


def _known(measured: Measured, family: str, level: int) -> Success | None:
    """Return success on a level if it was measured on enough items, else None."""
    found = measured.get(cell(family, level))
    return found if found is not None and found.items >= EVIDENCE else None


def _passed(config: CurriculumConfig, family: str, measured: Measured, level: int) -> bool:
    found = _known(measured, family, level)
    return found is not None and found.rate > config.promote


# ---- shares ------------------------------------------------------------------------------------


def adaptive(config: CurriculumConfig, measured: Measured, frontiers: Frontiers) -> Mix:
    """Return the mix that follows from success and frontiers; the shares add up to 1."""
    done = {f for f in frontiers if _done(config, f, measured, frontiers[f].level)}
    behind = [
        cell(f, level)
        for f, at in sorted(frontiers.items())
        for level in range(1, at.level + (f in done))
    ]
    replay = config.replay if behind else 0.0
    parts: list[tuple[float, list[str]]] = [(config.trickle, cells(config)), (replay, behind)]
    rest = 1 - config.trickle - replay
    going = {f: at for f, at in frontiers.items() if f not in done}
    if going:
        shares = _by_family(config, going)
        parts += [(rest * shares[f], _edge(config, f, measured, going[f].level)) for f in going]
    else:
        parts.append((rest, cells(config)))
    return {
        name: math.fsum(share / len(some) for share, some in parts if name in some)
        for name in cells(config)
        if any(name in some for share, some in parts if share)
    }


def _done(config: CurriculumConfig, family: str, measured: Measured, level: int) -> bool:
    return level == config.levels and _passed(config, family, measured, level)


def _by_family(config: CurriculumConfig, going: Frontiers) -> dict[str, float]:
    """Return family → its share of the rest: even, but for those that do not move."""
    stuck = {f for f, at in going.items() if at.still >= config.patience}
    if not stuck or len(stuck) == len(going):
        return dict.fromkeys(going, 1 / len(going))
    capped = config.cap / len(going)
    free = (1 - capped * len(stuck)) / (len(going) - len(stuck))
    return {f: capped if f in stuck else free for f in going}


def _edge(config: CurriculumConfig, family: str, measured: Measured, level: int) -> list[str]:
    """Return a family's cells at the edge of chaos: the frontier, and those within the band."""
    found = []
    for one in range(1, config.levels + 1):
        seen = _known(measured, family, one)
        if one == level or (seen is not None and config.low <= seen.rate <= config.high):
            found.append(cell(family, one))
    return found


def _even(some: list[str]) -> Mix:
    return dict.fromkeys(some, 1 / len(some))
