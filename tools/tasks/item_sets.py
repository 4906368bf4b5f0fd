"""Sets of different tool tasks by slice; they never overlap. Pure.

The digest of an item's questions and answer says its slice, so an item has the same slice in every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count, islice

from agent_forge.evaluation.data.slices import Slice, slice_of
from agent_forge.evaluation.task_families.item_sets import LULL, SHARES
from agent_forge.events import canonical_json
from agent_forge.tools import tasks as tool_tasks
from agent_forge.tools.tasks.base import ToolItem


def items(family: str, levels: int, seed: int, on: Slice, limit: int) -> list[ToolItem]:
    """Return up to `limit` different items of a slice, of the levels 1 … `levels` in turn.

    There are fewer if the family has fewer. Raises ConfigError for an unknown family.
    """
    keys = set[str]()
    turns = [_new(family, level, seed, on, keys) for level in range(1, levels + 1)]
    tool_items: list[ToolItem] = []
    while turns and len(tool_items) < limit:
        for turn in list(turns):
            item = next(islice(turn, 1), None)
            if item is None:
                turns.remove(turn)
            elif len(tool_items) < limit:
                tool_items.append(item)
    return tool_items


def of_level(family: str, level: int, seed: int, on: Slice, limit: int) -> list[ToolItem]:
    """Return up to `limit` different items of one level of a slice, in the order of their numbers."""
    return list(islice(_new(family, level, seed, on, set()), limit))


def _new(family: str, level: int, seed: int, on: Slice, keys: set[str]) -> Iterator[ToolItem]:
    """Yield the items of a slice that are not in `keys`, adding them; end after LULL without one."""
    last = 0
    for number in count():
        item = tool_tasks.item(family, level, seed, number)
        key = "\n".join((*item.questions, item.answer or ""))
        if key not in keys and slice_of(f"tool-tasks/{family}/{key}", SHARES) == on:
            keys.add(key)
            last = number
            yield item
        if number - last >= LULL:
            return


def digest(items: dict[str, list[ToolItem]]) -> str:
    """Return BLAKE2b of the items of all families, 64 hexadecimal digits."""
    dump: dict[str, object] = {name: [asdict(item) for item in group] for name, group in items.items()}
    return hashlib.blake2b(canonical_json(dump).encode(), digest_size=32).hexdigest()
