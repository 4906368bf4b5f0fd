"""Family `brackets`: what closes the brackets that are still open."""

from __future__ import annotations

from dataclasses import dataclass

from agent_forge.evaluation.task_families.families import IntegerDraws, body

#: Opening bracket → the closing one.
PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}


@dataclass(frozen=True)
class Brackets:
    """`close ( [ ] < =` → `> )`. Level: 3, 5, …, 21 brackets in the prompt."""

    what = "the brackets that close those that are open"

    def prompt(self, level: int, draws: IntegerDraws) -> str:
        """Return a prompt: a random walk of opening and closing brackets, of which some stay open."""
        brackets, opened = list[str](), list[str]()
        for _ in range(2 * level + 1):
            if opened and draws.below(2):
                brackets.append(PAIRS[opened.pop()])
            else:
                opened += draws.some("".join(PAIRS), 1)
                brackets.append(opened[-1])
        return f"close {' '.join(brackets)} ="

    def answer(self, prompt: str) -> str:
        """Return the closing brackets, the last opened first. Raises ValueError for a wrong pair."""
        opened: list[str] = []
        for symbol in body(prompt, "close"):
            if symbol in PAIRS:
                opened.append(symbol)
            elif not opened or PAIRS[opened.pop()] != symbol:
                raise ValueError(f"{symbol} closes nothing in {prompt!r}")
        return " ".join(PAIRS[symbol] for symbol in reversed(opened))
