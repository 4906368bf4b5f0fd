"""Family `memory`: a fact is told in one session and asked for in another."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_lowercase, digits

from evaluation.task_families.base import Draws
from evaluation.tool_tasks.base import ToolItem
from evaluation.tools.calls import Call
from evaluation.tools.toolbox import World


@dataclass(frozen=True)
class MemoryTask:
    """`note ab = 741`, and later `recall ab` → `741`. Level: 1 to 5 facts, one of them is asked for."""

    what = "a fact of an earlier session"
    tools = ("put", "get")

    def item(self, level: int, draws: Draws) -> ToolItem:
        """Return random facts with different keys, a session each, and the question for one."""
        firsts = draws.distinct(ascii_lowercase, level)
        facts = [
            (first + draws.some(ascii_lowercase, 1)[0], "".join(draws.some(digits, 3)))
            for first in firsts
        ]
        key, answer = facts[draws.below(level)]
        notes = tuple(f"note {k} = {v}" for k, v in facts)
        calls = (*((Call("put", f"{k} = {v}"),) for k, v in facts), (Call("get", key),))
        questions = (*notes, f"recall {key}")
        return ToolItem("memory", level, questions, answer, World(), calls, self.tools)
