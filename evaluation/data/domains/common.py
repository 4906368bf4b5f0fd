"""Parts that the domains share: ids, slices, choices.

Items that ask the same are in one slice. The prompt decides the slice, or what the maker says that
the item is about (`about`). So a question and a problem of one task, or one task under two names,
are in the same slice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agent_forge.evaluation.data.slices import Slice, slice_of

#: Items of each kind that a domain makes.
COUNT = 240
#: Grades, from what small models may know to what large ones may.
GRADES = 4
#: Tries to make one item whose prompt is new.
TRIES = 1000

#: The slices' shares of items; no item is for calibration.
SHARES: Mapping[Slice, float] = {"train": 0.0, "search": 0.4, "selection": 0.3, "test": 0.3}

#: A function that makes one item of a grade: all but id, domain, slice and grade; None: try again.
Maker = Callable[[random.Random, int], dict[str, Any] | None]


def make(
    domain: str, kind: str, seed: int, maker: Maker, count: int = COUNT
) -> Iterator[dict[str, Any]]:
    """Yield `count` different items, equally many of each grade, from a separate generator.

    Two items with one prompt are the same item: no prompt occurs twice.
    """
    r = random.Random(f"{domain}/{kind}/{seed}")
    prompts: set[str] = set()
    for number in range(count):
        grade = number % GRADES
        tries = (maker(r, grade) for _ in range(TRIES))
        row = next(x for x in tries if x is not None and x["prompt"] not in prompts)
        prompts.add(row["prompt"])
        slice_ = slice_of(f"{domain}/{row.pop('about', row['prompt'])}", SHARES)
        id_ = f"{domain}/{kind}/{number:04d}"
        yield {"id": id_, "domain": domain, "slice": slice_, "grade": grade, **row}


def choose(r: random.Random, prompt: str, right: str, wrong: list[str]) -> dict[str, Any]:
    """Return a question with the right choice among wrong choices, in a random order."""
    choices = [right, *wrong]
    r.shuffle(choices)
    return {"prompt": prompt, "choices": choices, "answer": choices.index(right)}
