"""Family `repair`: a repository of a few files, an issue, and tests that fail and must pass.

The form of SWE-bench (arXiv 2310.06770) in miniature. Each repository has one bug of a known class, and
its tests fail with the bug and pass without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_forge.evaluation.task_families.base import Draws
from agent_forge.evaluation.tool_tasks.base import ToolItem
from agent_forge.evaluation.tools.calls import Call
from agent_forge.evaluation.tools.toolbox import World


@dataclass(frozen=True)
class Bug:
    """A function with one wrong line."""

    name: str
    #: Lines of the function, with the right line.
    lines: tuple[str, ...]
    #: Number of the line in the function, from 0, and what stands there wrongly.
    at: int
    wrong: str
    #: The issue as its reporter tells it.
    issue: str
    #: Tests; `k` stands for the constant of the item.
    tests: tuple[str, ...]


#: Classes of bugs: a wrong operator, off by one, a wrong name, a wrong start, a missing case.
BUGS = (
    Bug(
        "area",
        ("def area(width, height):", "    return width * height * {k}"),
        1,
        "    return width + height * {k}",
        "area(2, 5) is wrong",
        ("assert area(2, 5) == {10k}", "assert area(0, 3) == 0"),
    ),
    Bug(
        "total",
        ("def total(count):", "    return sum(range(count + 1)) + {k}"),
        1,
        "    return sum(range(count)) + {k}",
        "total(3) leaves out the last number",
        ("assert total(3) == {6+k}", "assert total(0) == {k}"),
    ),
    Bug(
        "larger",
        ("def larger(a, b):", "    return a + {k} if a > b else b + {k}"),
        1,
        "    return b + {k} if a > b else b + {k}",
        "larger(9, 2) gives the smaller number",
        ("assert larger(9, 2) == {9+k}", "assert larger(2, 9) == {9+k}"),
    ),
    Bug(
        "product",
        ("def product(items):", "    found = {k}", "    for item in items:", "        found *= item",
         "    return found"),
        1,
        "    found = 0",
        "product([2, 3]) is always 0",
        ("assert product([2, 3]) == {6k}", "assert product([]) == {k}"),
    ),
    Bug(
        "last",
        ("def last(items):", "    return items[-1] + {k}"),
        1,
        "    return items[0] + {k}",
        "last([1, 2, 4]) takes the first item",
        ("assert last([1, 2, 4]) == {4+k}", "assert last([7]) == {7+k}"),
    ),
)  # fmt: skip
#: A file that has no bug.
HELPER = "LIMIT = {k}\n\n\ndef clamp(value):\n    return min(value, LIMIT)\n"


@dataclass(frozen=True)
class Repair:
    """An issue and files → an edit after which all tests pass. Level: lines around the bug."""

    what = "a bug of a repository, told by an issue"
    tools = ("edit", "test")

    def item(self, level: int, draws: Draws) -> ToolItem:
        """Return a random bug with a random constant, after functions that have none."""
        bug, k = BUGS[draws.below(len(BUGS))], 2 + draws.below(98)
        before = [f"def step{n}(x):\n    return x + {n + k}\n\n" for n in range(level - 1)]
        lines = "\n".join(before).splitlines()
        number = len(lines) + bug.at + 1
        right = [_filled(line, k) for line in bug.lines]
        lines += [*right[: bug.at], _filled(bug.wrong, k), *right[bug.at + 1 :]]
        file = f"{bug.name}s.py"
        files = {"helper.py": _filled(HELPER, k), file: "\n".join(lines) + "\n"}
        helper_test = f"assert __import__('helper').clamp({k + 1}) == {k}"
        tests = (*(_filled(test, k) for test in bug.tests), helper_test)
        shown = "\n".join(f"{n} {line}" for n, line in enumerate(lines, 1))
        question = f"issue: {bug.issue}\n{file}\n{shown}\nfix:"
        fix = Call("edit", f"{file} {number} {right[bug.at].strip()}")
        world = World(files=files, tests=tests)
        return ToolItem("repair", level, (question,), None, world, ((fix,),), self.tools)


def _filled(text: str, k: int) -> str:
    """Return a text with the item's constant in its places."""
    values = {"{k}": k, "{10k}": 10 * k, "{6k}": 6 * k}
    values |= {f"{{{n}+k}}": n + k for n in (4, 6, 7, 9)}
    for place, value in values.items():
        text = text.replace(place, str(value))
    return text
