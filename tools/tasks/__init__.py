"""Tasks that need a tool, in levels: a program makes and checks them. Only `episodes` does I/O.

An item is a function of (family, level, seed, number), as in `evaluation/task_families/`. Sets of items
by slice never overlap: the digest of an item's questions and answer says its slice, so an item has the
same slice in every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import count, islice

from agent_forge.evaluation.data.slices import Slice, slice_of
from agent_forge.evaluation.task_families import LULL, SHARES
from agent_forge.evaluation.task_families.families import IntegerDraws
from agent_forge.events import canonical_json
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


def items(family: str, levels: int, seed: int, on: Slice, limit: int) -> list[ToolItem]:
    """Return up to `limit` different items of a slice, of the levels 1 … `levels` in turn.

    There are fewer if the family has fewer. Raises ConfigError for an unknown family.
    """
    keys = set[str]()
    turns = [_new(family, level, seed, on, keys) for level in range(1, levels + 1)]
    tool_items: list[ToolItem] = []
    while turns and len(tool_items) < limit:
        for turn in list(turns):
            task = next(islice(turn, 1), None)
            if task is None:
                turns.remove(turn)
            elif len(tool_items) < limit:
                tool_items.append(task)
    return tool_items


def of_level(family: str, level: int, seed: int, on: Slice, limit: int) -> list[ToolItem]:
    """Return up to `limit` different items of one level of a slice, in the order of their numbers."""
    return list(islice(_new(family, level, seed, on, set()), limit))


def _new(family: str, level: int, seed: int, on: Slice, keys: set[str]) -> Iterator[ToolItem]:
    """Yield the items of a slice that are not in `keys`, adding them; end after LULL without one."""
    last = 0
    for number in count():
        task = item(family, level, seed, number)
        key = "\n".join((*task.questions, task.answer or ""))
        if key not in keys and slice_of(f"tool-tasks/{family}/{key}", SHARES) == on:
            keys.add(key)
            last = number
            yield task
        if number - last >= LULL:
            return


def digest(items: dict[str, list[ToolItem]]) -> str:
    """Return BLAKE2b of the items of all families, 64 hexadecimal digits."""
    dump: dict[str, object] = {name: [asdict(item) for item in group] for name, group in items.items()}
    return hashlib.blake2b(canonical_json(dump).encode(), digest_size=32).hexdigest()
