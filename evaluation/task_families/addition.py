"""Family `addition`: the sum of two numbers, digit by digit."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.task_families.base import Draws, operands, spaced, two_numbers


@dataclass(frozen=True)
class Addition:
    """`add 1 7 + 5 =` → `2 2`. Level: digits of the numbers, 1 and 1 up to 6 and 5."""

    what = "the sum of two numbers"

    def prompt(self, level: int, draws: Draws) -> str:
        """Return two random numbers."""
        a, b = operands(level, draws)
        return f"add {spaced(a)} + {spaced(b)} ="

    def answer(self, prompt: str) -> str:
        """Return the digits of the sum."""
        a, b = two_numbers(prompt, "add", "+")
        return spaced(a + b)
