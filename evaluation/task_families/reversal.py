"""Family `reversal`: a word from its last letter to its first."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_lowercase

from evaluation.task_families.base import Draws, body


@dataclass(frozen=True)
class Reversal:
    """`reverse a b c =` → `c b a`. Level: 2 to 11 letters."""

    what = "a word backwards"

    def prompt(self, level: int, draws: Draws) -> str:
        """Return random letters."""
        return f"reverse {' '.join(draws.some(ascii_lowercase, level + 1))} ="

    def answer(self, prompt: str) -> str:
        """Return the letters backwards."""
        return " ".join(reversed(body(prompt, "reverse")))
