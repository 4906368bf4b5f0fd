"""Sets of different tool tasks by slice; they never overlap. Pure.

The digest of an item's questions and answer says its slice, so an item has the same slice in every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count, islice
from typing import Any

from evaluation import tool_tasks
from evaluation.data.slices import Slice, slice_of
from evaluation.task_families.item_sets import LULL, SHARES
from evaluation.tool_tasks.base import ToolItem
from events import canonical_json


def items(family: str, levels: int, seed: int, on: Slice, wanted: int) -> list[ToolItem]:
    """Return up to `wanted` different items of a slice, of the levels 1 … `levels` in turn.

    There are fewer if the family has fewer. Raises ConfigError for an unknown family.
    """
    seen = set[str]()
    turns = [_new(family, level, seed, on, seen) for level in range(1, levels + 1)]
    found: list[ToolItem] = []
    while turns and len(found) < wanted:
        for turn in list(turns):
            one = next(islice(turn, 1), None)
            if one is None:
                turns.remove(turn)
            elif len(found) < wanted:
                found.append(one)
    return found


def of_level(family: str, level: int, seed: int, on: Slice, wanted: int) -> list[ToolItem]:
    """Return up to `wanted` different items of one level of a slice, in the order of their numbers."""
    return list(islice(_new(family, level, seed, on, set()), wanted))


def _new(family: str, level: int, seed: int, on: Slice, seen: set[str]) -> Iterator[ToolItem]:
    """Yield the items of a slice that are not among those `seen`, until a lull; add them there."""
    last = 0
    for number in count():
        found = tool_tasks.item(family, level, seed, number)
        key = "\n".join((*found.questions, found.answer or ""))
        if key not in seen and slice_of(f"tool-tasks/{family}/{key}", SHARES) == on:
            seen.add(key)
            last = number
            yield found
        if number - last >= LULL:
            return


def digest(items: dict[str, list[ToolItem]]) -> str:
    """Return BLAKE2b over all items by name, 64 hexadecimal digits."""
    told: dict[str, Any] = {name: [asdict(one) for one in some] for name, some in items.items()}
    return hashlib.blake2b(canonical_json(told).encode(), digest_size=32).hexdigest()
