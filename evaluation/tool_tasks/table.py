"""Family `table`: the value of a key in a table that the model does not see."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_lowercase, digits

from evaluation.task_families.base import Draws
from evaluation.tool_tasks.base import ToolItem
from evaluation.tools.calls import Call
from evaluation.tools.toolbox import World


@dataclass(frozen=True)
class TableTask:
    """`value of qf` → `482`. Level: tables of 4, 8, … 64 keys."""

    what = "the value of a key in a table"
    tools = ("table",)

    def item(self, level: int, draws: Draws) -> ToolItem:
        """Return a random table and one of its keys."""
        rows: dict[str, str] = {}
        while len(rows) < 2 << level:
            rows["".join(draws.some(ascii_lowercase, 2))] = "".join(draws.some(digits, 3))
        key = [*rows][draws.below(len(rows))]
        calls = ((Call("table", key),),)
        world = World(table=rows)
        return ToolItem("table", level, (f"value of {key}",), rows[key], world, calls, self.tools)
