"""Shared parts of the built-in domains: item ids, slices, choices, and code tasks.

The slice of an item follows from its prompt, or from the subject that its maker names (`about`). So
items that ask the same, such as a question and a problem of one task, are in the same slice.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from agent_forge.evaluation.data.slices import Slice, slice_of

#: Items of each kind that a domain makes.
COUNT = 240
#: Grades, from what small models may know to what large ones may.
GRADES = 4
#: Tries to make one item whose prompt is new.
TRIES = 1000

#: The slices' shares of items; no item is for calibration.
SHARES: Mapping[Slice, float] = {"train": 0.0, "search": 0.4, "selection": 0.3, "test": 0.3}

#: A function that makes one item of a grade: all but id, domain, slice and grade; None: try again.
Maker = Callable[[random.Random, int], dict[str, object] | None]


def make(
    domain: str, kind: str, seed: int, maker: Maker, count: int = COUNT
) -> Iterator[dict[str, object]]:
    """Yield `count` different item rows, as many of each grade, from a random generator of their own.

    Two items with one prompt are the same item: no prompt occurs twice.
    """
    r = random.Random(f"{domain}/{kind}/{seed}")
    prompts: set[object] = set()
    for number in range(count):
        grade = number % GRADES
        tries = (maker(r, grade) for _ in range(TRIES))
        row = next(x for x in tries if x is not None and x["prompt"] not in prompts)
        prompts.add(row["prompt"])
        slice_ = slice_of(f"{domain}/{row.pop('about', row['prompt'])}", SHARES)
        id_ = f"{domain}/{kind}/{number:04d}"
        yield {"id": id_, "domain": domain, "slice": slice_, "grade": grade, **row}


def choose(r: random.Random, prompt: str, right: str, wrong: list[str]) -> dict[str, object]:
    """Return a question {prompt, choices, answer}: the right choice among wrong ones, shuffled."""
    choices = [right, *wrong]
    r.shuffle(choices)
    return {"prompt": prompt, "choices": choices, "answer": choices.index(right)}


@dataclass(frozen=True)
class FunctionTask:
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
        """The text of the signature and docstring."""
        return f'def {self.name}({self.parameters}):\n    """{self.doc}"""\n'

    def tests(self) -> list[str]:
        """Return one assert statement (text) per call, with the value that the right body returns."""
        space: dict[str, object] = {}
        exec(self.prompt + indented(self.right), space)  # only text of this file
        calls = [f"{self.name}({arguments})" for arguments in self.calls]
        return [f"assert {call} == {eval(call, space)!r}" for call in calls]

    @property
    def about(self) -> str:
        """The right function's text with numbered names: tasks that differ only in names share it."""
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
    """Return a body's text, indented as it stands in a function."""
    return "".join(f"    {line}\n" for line in body.split("\n"))


def some(r: random.Random, count: int, low: int = -20, high: int = 50) -> list[int]:
    """Return a list of `count` random whole numbers from `low` to `high`, both included."""
    return [r.randint(low, high) for _ in range(count)]
