"""The rule `frontier`: a mix by shares, most of it for one level of each family. Pure.

Of a mix, `trickle` is spread over all cells (a cell is a family and a level), `replay` over the levels
below the frontiers, and the rest over the families. A family's frontier is the lowest level that is not
passed. Each family's part goes to its frontier and to all its levels with success in [`low`, `high`]. A
family that passes its highest level needs no more of the rest. A family whose frontier has not moved
for `patience` segments gets `cap` of its part: on a plateau it would only take tokens from the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from agent_forge.phases.curriculum.recipes import Change, Frontier
from agent_forge.phases.curriculum.settings import EVIDENCE, CurriculumConfig


def moved(
    config: CurriculumConfig, family: str, measured: Measured, before: Frontier | None
) -> Frontier:
    """Return a family's new frontier: placed, demoted, promoted or held, by what was measured."""
    if before is None:
        level = climbed(config, family, measured, 1)
        return frontier(family, measured, level, level, "placed", 0)
    level = before.level
    below = known(measured, family, level - 1)
    if below is not None and below.rate < config.demote:
        return frontier(family, measured, level - 1, level - 1, "demoted", 0)
    higher = climbed(config, family, measured, level)
    if higher > level:
        return frontier(family, measured, higher, level, "promoted", 0)
    return frontier(family, measured, level, level, "held", before.still + 1)


def mix(config: CurriculumConfig, measured: Measured, frontiers: Frontiers) -> Mix:
    """Return cell → share of the next mix, by success and frontiers; the shares add up to 1."""
    top = config.levels
    done = {f for f, at in frontiers.items() if at.level == top and passed(config, f, measured, top)}
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
        name: math.fsum(share / len(part_cells) for share, part_cells in parts if name in part_cells)
        for name in cells(config)
        if any(name in part_cells for share, part_cells in parts if share)
    }


def _by_family(config: CurriculumConfig, going: Frontiers) -> dict[str, float]:
    """Return family → share, adding up to 1: even, but `cap` of that for stuck ones unless all are."""
    stuck = {f for f, at in going.items() if at.still >= config.patience}
    if not stuck or len(stuck) == len(going):
        return dict.fromkeys(going, 1 / len(going))
    capped = config.cap / len(going)
    free = (1 - capped * len(stuck)) / (len(going) - len(stuck))
    return {f: capped if f in stuck else free for f in going}


def _edge(config: CurriculumConfig, family: str, measured: Measured, level: int) -> list[str]:
    """Return the names of a family's cells to train on: the frontier, and levels within the band."""
    edge_cells = []
    for candidate in range(1, config.levels + 1):
        if candidate == level or in_band(config, family, measured, candidate):
            edge_cells.append(cell(family, candidate))
    return edge_cells


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
    """Return the name of a cell, "FAMILY/LEVEL"."""
    return f"{family}/{level}"


def cells(config: CurriculumConfig) -> list[str]:
    """Return the names of all cells, sorted by family and level."""
    levels = range(1, config.levels + 1)
    return [cell(family, level) for family in sorted(config.families) for level in levels]


def even(cell_names: list[str]) -> Mix:
    """Return cell → share, the same for all of these cells."""
    return dict.fromkeys(cell_names, 1 / len(cell_names))


def known(measured: Measured, family: str, level: int) -> Success | None:
    """Return the success on a level; None if it was measured on fewer than `EVIDENCE` items."""
    success = measured.get(cell(family, level))
    return success if success is not None and success.items >= EVIDENCE else None


def passed(config: CurriculumConfig, family: str, measured: Measured, level: int) -> bool:
    """Return True if the success on a level is known, and above `promote`."""
    success = known(measured, family, level)
    return success is not None and success.rate > config.promote


def climbed(config: CurriculumConfig, family: str, measured: Measured, level: int) -> int:
    """Return the lowest level from `level` on that is not passed; the highest if all are."""
    while level < config.levels and passed(config, family, measured, level):
        level += 1
    return level


def in_band(config: CurriculumConfig, family: str, measured: Measured, level: int) -> bool:
    """Return True if the success on a level is in [`low`, `high`], the edge of chaos."""
    success = known(measured, family, level)
    return success is not None and config.low <= success.rate <= config.high


def frontier(
    family: str, measured: Measured, level: int, by: int, change: Change, still: int
) -> Frontier:
    """Return the frontier record at `level`, with the success on level `by` that decided it."""
    success = measured.get(cell(family, by), Success(0.0, 0))
    return Frontier(
        level=level, change=change, by=by, success=success.rate, items=success.items, still=still
    )
