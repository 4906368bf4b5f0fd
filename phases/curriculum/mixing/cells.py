"""Cells (family and level), success on them, and the frontiers of families. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phases.curriculum.events import Change, Frontier
from phases.curriculum.settings import EVIDENCE, CurriculumConfig

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


def even(cell_names: list[str]) -> Mix:
    """Return the mix of some cells alike."""
    return dict.fromkeys(cell_names, 1 / len(cell_names))


def known(measured: Measured, family: str, level: int) -> Success | None:
    """Return success on a level if it was measured on enough items, else None."""
    success = measured.get(cell(family, level))
    return success if success is not None and success.items >= EVIDENCE else None


def passed(config: CurriculumConfig, family: str, measured: Measured, level: int) -> bool:
    """Return True if success on a level is above `promote`."""
    success = known(measured, family, level)
    return success is not None and success.rate > config.promote


def climbed(config: CurriculumConfig, family: str, measured: Measured, level: int) -> int:
    """Return the first level from `level` on that is not passed; the highest if all are."""
    while level < config.levels and passed(config, family, measured, level):
        level += 1
    return level


def in_band(config: CurriculumConfig, family: str, measured: Measured, level: int) -> bool:
    """Return True if success on a level is in [`low`, `high`], the edge of chaos."""
    success = known(measured, family, level)
    return success is not None and config.low <= success.rate <= config.high


def frontier(
    family: str, measured: Measured, level: int, by: int, change: Change, still: int
) -> Frontier:
    """Return a frontier that follows from success on the level `by`."""
    success = measured.get(cell(family, by), Success(0.0, 0))
    return Frontier(
        level=level, change=change, by=by, success=success.rate, items=success.items, still=still
    )
