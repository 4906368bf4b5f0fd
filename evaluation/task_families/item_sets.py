"""Sets of different items by slice: those to train on, to choose by and to test on never overlap. Pure.

The digest of an item's prompt says its slice, so an item has the same slice in every run, of
any seed. Cells of short tasks have few prompts in all: such a set has as many as are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, islice

from agent_forge.evaluation import task_families
from agent_forge.evaluation.data.slices import Slice, slice_of
from agent_forge.evaluation.task_families.families import Exercise

#: Shares of the prompts of a cell.
SHARES: Mapping[Slice, float] = {"train": 0.6, "search": 0.0, "selection": 0.2, "test": 0.2}
#: Items in a row that bring nothing new, after which a cell counts as used up.
LULL = 1000


def slice_of_prompt(family: str, prompt: str) -> Slice:
    """Return the slice of a prompt of a family, by its digest."""
    return slice_of(f"task-families/{family}/{prompt}", SHARES)


def items(family: str, level: int, seed: int, on: Slice, limit: int) -> list[Exercise]:
    """Return up to `limit` different items of a slice, in the order of their numbers.

    There are fewer if the cell has fewer prompts. Raises ConfigError for an unknown family.
    """
    return list(islice(_new(family, level, seed, on), limit))


def _new(family: str, level: int, seed: int, on: Slice) -> Iterator[Exercise]:
    """Yield the slice's items whose prompt is new, until `LULL` numbers in a row bring none."""
    prompts, last = set[str](), 0
    for number in count():
        item = task_families.item(family, level, seed, number)
        if (
            item is not None
            and item.prompt not in prompts
            and slice_of_prompt(family, item.prompt) == on
        ):
            prompts.add(item.prompt)
            last = number
            yield item
        if number - last >= LULL:
            return
