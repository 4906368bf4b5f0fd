"""Family `calculation`: arithmetic that is too large for the model."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.task_families.base import Draws, number
from evaluation.tool_tasks.base import ToolItem
from evaluation.tools.calculator import Calculator
from evaluation.tools.calls import Call
from evaluation.tools.toolbox import World


@dataclass(frozen=True)
class Calculation:
    """`compute 48 * 73 =` → `3504`. Level: 2 to 6 digits of both numbers."""

    what = "the value of a product, a sum or a difference"
    tools = ("calc",)

    def item(self, level: int, draws: Draws) -> ToolItem:
        """Return two random numbers and an operator."""
        a, b = number(draws, level + 1), number(draws, level + 1)
        expression = f"{a} {'+-*'[draws.below(3)]} {b}"
        answer, calls = Calculator().run(expression), ((Call("calc", expression),),)
        return ToolItem(
            "calculation", level, (f"compute {expression} =",), answer, World(), calls, self.tools
        )
