"""Families `automaton-0` … `automaton-255`: the next state of an elementary cellular automaton.

Wolfram 1983, "Statistical mechanics of cellular automata": the new value of a cell is the bit
4 · left + 2 · own + right of the rule's number. The cells form a ring.
"""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.task_families.base import Draws, body

#: Number of rules: three cells have eight states.
RULES = 256


@dataclass(frozen=True)
class Automaton:
    """`step 0 1 0 0 0 0 =` → the next state. Level: 6, 8, …, 24 cells."""

    rule: int

    @property
    def what(self) -> str:
        """The task, in words."""
        return f"the next state of the elementary cellular automaton of rule {self.rule}"

    def prompt(self, level: int, draws: Draws) -> str:
        """Return a random state."""
        return f"step {' '.join(draws.some('01', 4 + 2 * level))} ="

    def answer(self, prompt: str) -> str:
        """Return the next state. Raises ValueError for a cell that is not 0 or 1."""
        cells = [("0", "1").index(symbol) for symbol in body(prompt, "step")]
        states = [
            self.rule >> (4 * cells[i - 1] + 2 * cell + cells[(i + 1) % len(cells)]) & 1
            for i, cell in enumerate(cells)
        ]
        return " ".join(map(str, states))
