"""Base of tool tasks: items, the interface of a family, and the rule by which an answer is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agent_forge.evaluation.task_families.families import IntegerDraws
from agent_forge.tools.calls import Call
from agent_forge.tools.toolbox import World

#: Levels of difficulty: 1 … LEVELS.
LEVELS = 5
#: Word after which a longer reply states its answer.
ANSWER = "answer:"


@dataclass(frozen=True)
class ToolItem:
    """A task of one or several sessions, one a question; a session sees nothing of the earlier ones."""

    family: str
    level: int
    questions: tuple[str, ...]
    #: The right answer to the last question; None: the tests of the world's files decide.
    answer: str | None
    world: World
    #: The calls of a solution, by session.
    calls: tuple[tuple[Call, ...], ...]
    #: Tools that the solution uses.
    tools: tuple[str, ...]

    @property
    def needs_sandbox(self) -> bool:
        """True if the item's tools or its tests run programs."""
        return bool(self.world.files) or "python" in self.tools


class ToolTaskFamily(Protocol):
    """The interface of a family of tool tasks."""

    @property
    def what(self) -> str:
        """The task, in words."""
        ...

    @property
    def tools(self) -> Sequence[str]:
        """The tools that it needs."""
        ...

    def item(self, level: int, draws: IntegerDraws) -> ToolItem:
        """Return a random item of a level."""
        ...


def right(answer: str, reply: str) -> bool:
    """Return True if a reply is the answer, or if the answer stands after its last "answer:".

    Blanks and a full stop at the end do not count.
    """
    lowered = reply.lower()
    at = lowered.rfind(ANSWER)
    claim = reply[at + len(ANSWER) :] if at >= 0 else reply
    return "".join(claim.split()).removesuffix(".") == "".join(answer.split()).removesuffix(".")
