"""Family `subtraction`: the difference of two numbers, digit by digit."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.task_families.base import Draws, operands, spaced, two_numbers


@dataclass(frozen=True)
class Subtraction:
    """`subtract 1 7 - 5 =` → `1 2`. Level: digits, as of addition; the larger number is first."""

    what = "the difference of two numbers"

    def prompt(self, level: int, draws: Draws) -> str:
        """Return two random numbers, the larger one first."""
        a, b = sorted(operands(level, draws), reverse=True)
        return f"subtract {spaced(a)} - {spaced(b)} ="

    def answer(self, prompt: str) -> str:
        """Return the digits of the difference."""
        a, b = two_numbers(prompt, "subtract", "-")
        return spaced(a - b)
