"""Family `recall`: the value of a key that was told before a long stretch of filler."""

from __future__ import annotations

from dataclasses import dataclass
from string import digits

from evaluation.task_families.base import Draws, body

#: Keys, and the symbols of the filler: no symbol is both.
KEYS, FILLER = "abcdefghijklmnop", "qrstuvwxyz"
#: Symbols of filler at each level, 1 to 10.
DISTANCES = (4, 8, 16, 32, 64, 96, 128, 160, 192, 256)
PAIRS = 4


@dataclass(frozen=True)
class Recall:
    """`recall a 3 f 7 c 3 k 0 : q r s t : f =` → `7`. Level: the length of the filler.

    The filler runs through its symbols in order, from any of them: it is easily foreseen.
    """

    what = "the value of a key that was told before a stretch of filler"

    def prompt(self, level: int, draws: Draws) -> str:
        """Return four pairs, filler, and one of the keys."""
        keys, values = draws.distinct(KEYS, PAIRS), draws.some(digits, PAIRS)
        pairs = " ".join(f"{k} {v}" for k, v in zip(keys, values, strict=True))
        start = draws.below(len(FILLER))
        filler = (FILLER[(start + i) % len(FILLER)] for i in range(DISTANCES[level - 1]))
        return f"recall {pairs} : {' '.join(filler)} : {keys[draws.below(PAIRS)]} ="

    def answer(self, prompt: str) -> str:
        """Return the digit after the key. Raises ValueError for a key that is not told."""
        symbols = body(prompt, "recall")
        pairs, key = symbols[: symbols.index(":")], symbols[-1]
        return pairs[1::2][pairs[::2].index(key)]
