"""Tasks that need a tool, in levels: a program makes and checks them. Only `episodes` does I/O.

An item is a function of (family, level, seed, number), as in `evaluation/task_families/`.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent_forge.evaluation.task_families.families import IntegerDraws
from agent_forge.runs.errors import ConfigError
from agent_forge.tools.tasks.base import LEVELS, ToolItem, ToolTaskFamily
from agent_forge.tools.tasks.families import (
    Calculation,
    Execution,
    MemoryTask,
    Repair,
    Retrieval,
    TableTask,
)

#: Name → family.
FAMILIES: Mapping[str, ToolTaskFamily] = {
    "calculation": Calculation(),
    "execution": Execution(),
    "memory": MemoryTask(),
    "repair": Repair(),
    "retrieval": Retrieval(),
    "table": TableTask(),
}


def find(name: str) -> ToolTaskFamily:
    """Return the family of a name. Raises ConfigError for an unknown name."""
    if name not in FAMILIES:
        raise ConfigError(f"there are no tool tasks {name!r}: there are {', '.join(sorted(FAMILIES))}.")
    return FAMILIES[name]


def runs_programs(name: str) -> bool:
    """Return True if the family's tools run programs, so that its tasks need the sandbox."""
    return not {"python", "test"}.isdisjoint(find(name).tools)


def item(family: str, level: int, seed: int, number: int) -> ToolItem:
    """Return the item of these arguments, always the same.

    Raises ConfigError for an unknown family, ValueError for an unknown level.
    """
    if not 1 <= level <= LEVELS:
        raise ValueError(f"level {level}: there are levels 1 to {LEVELS}")
    return find(family).item(level, IntegerDraws("tool-tasks", family, level, seed, number))
