"""Toolbox: the tools that one task has, and calls of them whose errors are texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.sandbox.sandbox import Sandbox
from evaluation.tools.base import Tool, ToolError, cut
from evaluation.tools.calculator import Calculator
from evaluation.tools.calls import Call
from evaluation.tools.memory import Memory, Recall, Remember
from evaluation.tools.python import Python
from evaluation.tools.repository import Edit, Repository, Test
from evaluation.tools.search import Search
from evaluation.tools.table import Table

#: Names of all tools.
NAMES = ("calc", "table", "search", "put", "get", "python", "edit", "test")


@dataclass(frozen=True)
class Answer:
    """Output of a call."""

    output: str
    #: True if the call ran without an error.
    ran: bool


@dataclass(frozen=True)
class World:
    """Data that the tools of a task read and change."""

    table: Mapping[str, str] | None = None
    documents: Sequence[str] = ()
    files: Mapping[str, str] | None = None
    #: Tests of the files: all of them must pass.
    tests: Sequence[str] = ()


class Toolbox:
    """The tools of one task over its own world."""

    def __init__(self, world: World, folder: Path, sandbox: Callable[[], Sandbox]) -> None:
        """Keep memory in the existing `folder`; `sandbox` returns where programs run."""
        self.repository = Repository(world.files or {}, sandbox)
        memory = Memory(folder)
        self.tools: dict[str, Tool] = {
            "calc": Calculator(),
            "table": Table(world.table or {}),
            "search": Search(world.documents),
            "put": Remember(memory),
            "get": Recall(memory),
            "python": Python(sandbox),
            "edit": Edit(self.repository),
            "test": Test(self.repository, world.tests),
        }

    def answer(self, call: Call) -> Answer:
        """Carry out a call. An error of the tool is a text; the output has a bounded length.

        Raises SandboxUnavailableError: that says nothing about the call.
        """
        tool = self.tools.get(call.tool)
        if tool is None:
            return Answer(cut(f"error: there is no tool {call.tool[:40]!r}"), False)
        try:
            return Answer(cut(tool.run(call.arguments)), True)
        except ToolError as error:
            return Answer(cut(f"error: {error}"), False)


def usable(names: Collection[str]) -> dict[str, Tool]:
    """Return some of the tools over an empty world, for what they tell of themselves."""

    def none() -> Sandbox:
        raise ToolError("the tool has no sandbox")

    tools = Toolbox(World(), Path(), none).tools
    return {name: tool for name, tool in tools.items() if name in names}
