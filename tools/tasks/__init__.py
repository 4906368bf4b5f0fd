"""Tasks whose answers need a tool, in levels: made by a program and checked. Pure but for `episodes`.

An item is a function of (family, level, seed, number), as in `evaluation/task_families/`.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent_forge.evaluation.task_families.families import Draws
from agent_forge.runs.errors import ConfigError
from agent_forge.tools.tasks.base import LEVELS, Family, ToolItem
from agent_forge.tools.tasks.families import (
    Calculation,
    Execution,
    MemoryTask,
    Repair,
    Retrieval,
    TableTask,
)

#: Name → family.
FAMILIES: Mapping[str, Family] = {
    "calculation": Calculation(),
    "execution": Execution(),
    "memory": MemoryTask(),
    "repair": Repair(),
    "retrieval": Retrieval(),
    "table": TableTask(),
}


def find(name: str) -> Family:
    """Return a family. Raises ConfigError for a name that none has."""
    if name not in FAMILIES:
        raise ConfigError(f"there are no tool tasks {name!r}: there are {', '.join(sorted(FAMILIES))}.")
    return FAMILIES[name]


def runs_programs(name: str) -> bool:
    """Return True if the tasks of a family need the sandbox, in which programs run."""
    return not {"python", "test"}.isdisjoint(find(name).tools)


def item(family: str, level: int, seed: int, number: int) -> ToolItem:
    """Return an item: the same for the same arguments.

    Raises ConfigError for an unknown family, ValueError for a level that there is not.
    """
    if not 1 <= level <= LEVELS:
        raise ValueError(f"level {level}: there are levels 1 to {LEVELS}")
    return find(family).item(level, Draws("tool-tasks", family, level, seed, number))
