"""Family `chain`: the symbol that several steps along arrows lead to."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_lowercase

from evaluation.task_families.base import Draws, body


@dataclass(frozen=True)
class Chain:
    """`chain a > c b > a c > b : 2 a =` → `b`.

    Level: ⌈level / 2⌉ steps among level + 2 symbols.
    """

    what = "the symbol that several steps along arrows lead to"

    def prompt(self, level: int, draws: Draws) -> str:
        """Return a random permutation as arrows, the number of steps and where they begin."""
        symbols = draws.distinct(ascii_lowercase, level + 2)
        ends = draws.distinct("".join(symbols), len(symbols))
        arrows = " ".join(f"{a} > {b}" for a, b in zip(symbols, ends, strict=True))
        return f"chain {arrows} : {(level + 1) // 2} {symbols[draws.below(len(symbols))]} ="

    def answer(self, prompt: str) -> str:
        """Return the symbol at the end. Raises ValueError for a prompt that is not of this family."""
        *arrows, colon, steps, at = body(prompt, "chain")
        if colon != ":" or not 0 < int(steps) < 10:
            raise ValueError(f"{prompt!r} asks for no steps")
        following = dict(zip(arrows[::3], arrows[2::3], strict=True))
        for _ in range(int(steps)):
            if at not in following:
                raise ValueError(f"{prompt!r} has no arrow from {at}")
            at = following[at]
        return at
