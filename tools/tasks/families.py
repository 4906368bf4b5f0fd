"""Families of tool tasks: `execution`, `calculation`, `table`, `memory`, `retrieval` and `repair`.

The first five ask for the value of a small program, arithmetic that is too large for the model, a value
of a table that the model does not see, a fact of an earlier session, and a fact of one document among
many. `repair` is SWE-bench (arXiv 2310.06770) in miniature: a repository of a few files, an issue, and
one bug of a known class; its tests fail with the bug and pass without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_lowercase, digits

from agent_forge.evaluation.task_families.families import IntegerDraws, number
from agent_forge.tools.calculator import Calculator
from agent_forge.tools.calls import Call
from agent_forge.tools.tasks.base import ToolItem
from agent_forge.tools.toolbox import World


@dataclass(frozen=True)
class Execution:
    """`run sum(i * i % 7 for i in range(30))` → `84`. Level: 10 to 1000 rounds and more."""

    what = "the value of a program's expression"
    tools = ("python",)

    def item(self, level: int, draws: IntegerDraws) -> ToolItem:
        """Return an item that asks for a random expression over a range."""
        rounds = 10 + draws.below(10 * 3**level)
        factor, modulus = 2 + draws.below(8), 3 + draws.below(17)
        named = ("sum", "max")[draws.below(2)]
        expression = f"{named}(i * i * {factor} % {modulus} for i in range({rounds}))"
        values = [i * i * factor % modulus for i in range(rounds)]
        answer = str(sum(values) if named == "sum" else max(values))
        calls = ((Call("python", expression),),)
        return ToolItem("execution", level, (f"run {expression}",), answer, World(), calls, self.tools)


@dataclass(frozen=True)
class Calculation:
    """`compute 48 * 73 =` → `3504`. Level: 2 to 6 digits of both numbers."""

    what = "the value of a product, a sum or a difference"
    tools = ("calc",)

    def item(self, level: int, draws: IntegerDraws) -> ToolItem:
        """Return an item that asks for the sum, difference or product of two random numbers."""
        a, b = number(draws, level + 1), number(draws, level + 1)
        expression = f"{a} {'+-*'[draws.below(3)]} {b}"
        answer, calls = Calculator().run(expression), ((Call("calc", expression),),)
        return ToolItem(
            "calculation", level, (f"compute {expression} =",), answer, World(), calls, self.tools
        )


@dataclass(frozen=True)
class TableTask:
    """`value of qf` → `482`. Level: tables of 4, 8, … 64 keys."""

    what = "the value of a key in a table"
    tools = ("table",)

    def item(self, level: int, draws: IntegerDraws) -> ToolItem:
        """Return an item that asks for the value of one key of a random table."""
        rows: dict[str, str] = {}
        while len(rows) < 2 << level:
            rows["".join(draws.some(ascii_lowercase, 2))] = "".join(draws.some(digits, 3))
        key = [*rows][draws.below(len(rows))]
        calls = ((Call("table", key),),)
        world = World(table=rows)
        return ToolItem("table", level, (f"value of {key}",), rows[key], world, calls, self.tools)


@dataclass(frozen=True)
class MemoryTask:
    """`note ab = 741`, and later `recall ab` → `741`. Level: 1 to 5 facts, one of them is asked for."""

    what = "a fact of an earlier session"
    tools = ("put", "get")

    def item(self, level: int, draws: IntegerDraws) -> ToolItem:
        """Return an item of random facts, a session each, and a last session that asks for one."""
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


NAMES = (
    *("Ada", "Ben", "Cora", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jane", "Kurt", "Lea"),
    *("Max", "Nora", "Otto", "Pia", "Quin", "Rosa", "Sam", "Tess", "Uwe", "Vera", "Will", "Zoe"),
)
PLACES = (
    *("Bonn", "Cork", "Derby", "Essen", "Fulda", "Genoa", "Hanoi", "Izmir", "Jena", "Kyoto"),
    *("Lima", "Malta", "Nice", "Oslo", "Porto", "Quito", "Riga", "Siena", "Tunis", "Vaduz"),
)
TRADES = ("a baker", "a doctor", "a farmer", "a painter", "a teacher")


@dataclass(frozen=True)
class Retrieval:
    """`town of Nora` → `Oslo`. Level: corpora of 4, 8, … documents, at most one for each name."""

    what = "a fact of one document among many"
    tools = ("search",)

    def item(self, level: int, draws: IntegerDraws) -> ToolItem:
        """Return an item that asks where a person of a random corpus lives."""
        left, people = [*NAMES], list[tuple[str, str]]()
        for _ in range(min(2 << level, len(NAMES))):
            name = left.pop(draws.below(len(left)))
            people.append((name, PLACES[draws.below(len(PLACES))]))
        documents = tuple(
            f"{name} is {TRADES[draws.below(len(TRADES))]}. Home: {place}" for name, place in people
        )
        name, answer = people[draws.below(len(people))]
        calls, world = ((Call("search", name),),), World(documents=documents)
        return ToolItem("retrieval", level, (f"town of {name}",), answer, world, calls, self.tools)


@dataclass(frozen=True)
class Bug:
    """A function with one wrong line."""

    name: str
    #: Lines of the function, with the right line.
    lines: tuple[str, ...]
    #: Number of the wrong line in the function, from 0, and its text.
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
    """An issue and files → an edit after which all tests pass. Level: functions before the bug."""

    what = "a bug of a repository, told by an issue"
    tools = ("edit", "test")

    def item(self, level: int, draws: IntegerDraws) -> ToolItem:
        """Return an item with a random bug and a random constant, after functions without a bug."""
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
    """Return `text` with its places, as `{k}` or `{4+k}`, replaced by their numbers."""
    values = {"{k}": k, "{10k}": 10 * k, "{6k}": 6 * k}
    values |= {f"{{{n}+k}}": n + k for n in (4, 6, 7, 9)}
    for place, value in values.items():
        text = text.replace(place, str(value))
    return text
