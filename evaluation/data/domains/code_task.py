"""A task of the domain of code: a function to be written, its right body and three wrong ones."""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Task:
    """A function to be written. Bodies are lines without their first indentation."""

    name: str
    parameters: str
    doc: str
    right: str
    wrong: tuple[str, str, str]
    #: Argument lists, as text.
    calls: tuple[str, ...]

    @property
    def prompt(self) -> str:
        """Signature and docstring."""
        return f'def {self.name}({self.parameters}):\n    """{self.doc}"""\n'

    def tests(self) -> list[str]:
        """Return an assertion for every call, with the value that the right body returns."""
        space: dict[str, Any] = {}
        exec(self.prompt + indented(self.right), space)  # only text of this file
        calls = [f"{self.name}({arguments})" for arguments in self.calls]
        return [f"assert {call} == {eval(call, space)!r}" for call in calls]

    @property
    def about(self) -> str:
        """The right function with numbered names: the same for tasks that differ only in names."""
        tree = ast.parse(f"def f({self.parameters}):\n{indented(self.right)}")
        names = [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
        names += [
            n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        ]
        numbers = {name: f"v{place}" for place, name in enumerate(dict.fromkeys(names))}
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                node.arg = numbers[node.arg]
            elif isinstance(node, ast.Name):
                node.id = numbers.get(node.id, node.id)
        return ast.unparse(tree)


def indented(body: str) -> str:
    """Return a body, indented as it stands in a function."""
    return "".join(f"    {line}\n" for line in body.split("\n"))


def some(r: random.Random, count: int, low: int = -20, high: int = 50) -> list[int]:
    """Return `count` whole numbers from `low` to `high`."""
    return [r.randint(low, high) for _ in range(count)]
