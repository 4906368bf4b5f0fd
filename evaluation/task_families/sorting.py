"""Families `sort-digits` and `sort-letters`: symbols in order."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.task_families.base import Draws, body


@dataclass(frozen=True)
class Sorting:
    """`sort 4 1 4 =` → `1 4 4`. Level: 2 to 11 symbols, which may be equal."""

    symbols: str

    @property
    def what(self) -> str:
        """The task, in words."""
        return f"the symbols of a list in order, of {self.symbols[0]} to {self.symbols[-1]}"

    def prompt(self, level: int, draws: Draws) -> str:
        """Return random symbols."""
        return f"sort {' '.join(draws.some(self.symbols, level + 1))} ="

    def answer(self, prompt: str) -> str:
        """Return the symbols in ascending order."""
        return " ".join(sorted(body(prompt, "sort")))
