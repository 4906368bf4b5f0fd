"""Family `execution`: the value of a small program."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.task_families.base import Draws
from evaluation.tool_tasks.base import ToolItem
from evaluation.tools.calls import Call
from evaluation.tools.toolbox import World


@dataclass(frozen=True)
class Execution:
    """`run sum(i * i % 7 for i in range(30))` → `84`. Level: 10 to 1000 rounds and more."""

    what = "the value of a program's expression"
    tools = ("python",)

    def item(self, level: int, draws: Draws) -> ToolItem:
        """Return a random expression over a range."""
        rounds = 10 + draws.below(10 * 3**level)
        factor, modulus = 2 + draws.below(8), 3 + draws.below(17)
        named = ("sum", "max")[draws.below(2)]
        expression = f"{named}(i * i * {factor} % {modulus} for i in range({rounds}))"
        values = [i * i * factor % modulus for i in range(rounds)]
        answer = str(sum(values) if named == "sum" else max(values))
        calls = ((Call("python", expression),),)
        return ToolItem(
            "execution", level, (f"run {expression}",), answer, World(), calls, self.tools
        )
