"""Family `lookup`: the value of a key in a table."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_lowercase, digits

from evaluation.task_families.base import Draws, body


@dataclass(frozen=True)
class Lookup:
    """`look a 3 f 7 c 3 : f =` → `7`. Level: 2 to 11 keys, all different."""

    what = "the value of a key in a table"

    def prompt(self, level: int, draws: Draws) -> str:
        """Return a random table of letters with digits, and one of its letters."""
        keys = draws.distinct(ascii_lowercase, level + 1)
        values = draws.some(digits, level + 1)
        table = " ".join(f"{k} {v}" for k, v in zip(keys, values, strict=True))
        return f"look {table} : {keys[draws.below(len(keys))]} ="

    def answer(self, prompt: str) -> str:
        """Return the digit after the key. Raises ValueError for a key that is not in the table."""
        *table, colon, key = body(prompt, "look")
        if colon != ":":
            raise ValueError(f"{prompt!r} asks for no key")
        return table[1::2][table[::2].index(key)]
