"""Domain of code: a Python function from its name and docstring, run against tests.

Every task is written once: signature, docstring, a right body, three wrong bodies, and the
arguments of calls. The wrong bodies differ from the right one in an operator, a name or a number,
so that the length does not give the right body away. The right body computes the values that tests
expect. As a question the four bodies are choices; as a problem the model writes its own body.
"""

# A task is a table of texts.
# ruff: noqa: E501

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from evaluation.data.domains.common import choose, make


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
        calls = [f"{self.name}({given})" for given in self.calls]
        return [f"assert {call} == {eval(call, space)!r}" for call in calls]

    @property
    def about(self) -> str:
        """The right function with numbered names: the same for tasks that differ only in names."""
        tree = ast.parse(f"def f({self.parameters}):\n{indented(self.right)}")
        own = [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
        own += [
            n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        ]
        numbers = {name: f"v{place}" for place, name in enumerate(dict.fromkeys(own))}
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                node.arg = numbers[node.arg]
            elif isinstance(node, ast.Name):
                node.id = numbers.get(node.id, node.id)
        return ast.unparse(tree)


def indented(body: str) -> str:
    """Return a body, indented as it stands in a function."""
    return "".join(f"    {line}\n" for line in body.split("\n"))


def _some(r: random.Random, count: int, low: int = -20, high: int = 50) -> list[int]:
    return [r.randint(low, high) for _ in range(count)]


def _add(r: random.Random) -> Task:
    k, what = r.randint(2, 99), r.choice(["x", "n", "value"])
    return Task(f"add_{k}", what, f"Return {what} plus {k}.", f"return {what} + {k}",
                (f"return {what} - {k}", f"return {what} * {k}", f"return {what} // {k}"),
                ("0", "5", "-12", "1000"))  # fmt: skip


def _scale(r: random.Random) -> Task:
    k, b = r.sample(range(2, 20), 2)
    return Task(f"times_{k}_plus_{b}", "x", f"Return {k} times x, plus {b}.", f"return {k} * x + {b}",
                (f"return {k} * x - {b}", f"return {b} * x + {k}", f"return {k} + x + {b}"),
                ("0", "3", "-4", "11"))  # fmt: skip


def _larger(r: random.Random) -> Task:
    a, b = r.sample(["a", "b", "x", "y", "first", "second", "left", "right"], 2)
    word, op, other = r.choice([("larger", ">", "<"), ("smaller", "<", ">")])
    return Task(f"{word}_of", f"{a}, {b}", f"Return the {word} of {a} and {b}.",
                f"return {a} if {a} {op} {b} else {b}",
                (f"return {a} if {a} {other} {b} else {b}", f"return {b} if {a} {op} {b} else {a}",
                 f"return {b} if {b} {other} {a} else {a}"),
                ("1, 2", "7, -3", "4, 4", "-5, -6"))  # fmt: skip


def _divisible(r: random.Random) -> Task:
    k = r.randint(2, 30)
    return Task(f"is_divisible_by_{k}", "n", f"Return True if n can be divided by {k}, else False.",
                f"return n % {k} == 0",
                (f"return n // {k} == 0", f"return n % {k} != 0", f"return n % {k} == 1"),
                ("0", f"{k * 7}", f"{k * 7 + 1}", f"{-k}"))  # fmt: skip


def _wrap(r: random.Random) -> Task:
    left, right = r.choice([("(", ")"), ("[", "]"), ("<", ">"), ("{", "}"), ("#", "!"), ("+", "-")])
    what = r.choice(["text", "s", "word", "name"])
    return Task(r.choice(["wrap", "enclose", "surround"]), what,
                f"Return {what} with {left!r} before it and {right!r} after it.",
                f"return {left!r} + {what} + {right!r}",
                (f"return {what} + {left!r} + {right!r}", f"return {right!r} + {what} + {left!r}",
                 f"return {left!r} + {right!r} + {what}"),
                ("'a'", "''", "'two words'"))  # fmt: skip


def _count_above(r: random.Random) -> Task:
    k = r.randint(-5, 30)
    return Task(r.choice(["count_above", "how_many_above"]), "numbers",
                f"Return how many of the numbers are greater than {k}.",
                f"return sum(1 for n in numbers if n > {k})",
                (f"return sum(n for n in numbers if n > {k})", f"return sum(1 for n in numbers if n < {k})",
                 f"return sum(1 for n in numbers if n == {k})"),
                (f"{_some(r, 6)}", f"{[*_some(r, 4), k]}", f"[{k}, {k + 1}, {k + 2}]", "[]"))  # fmt: skip


def _sum_if(r: random.Random) -> Task:
    word, test, other = r.choice(
        [
            ("even", "n % 2 == 0", "n % 2 == 1"),
            ("odd", "n % 2 == 1", "n % 2 == 0"),
            ("positive", "n > 0", "n < 0"),
            ("negative", "n < 0", "n > 0"),
        ]
    )
    name = r.choice(["numbers", "values", "items", "data"])
    return Task(f"sum_of_{word}", name, f"Return the sum of the {word} ones of {name}.",
                f"return sum(n for n in {name} if {test})",
                (f"return sum(n for n in {name} if {other})", f"return sum(1 for n in {name} if {test})",
                 f"return list(n for n in {name} if {test})"),
                (f"{_some(r, 6)}", f"{_some(r, 5)}", "[1, 2, -3, -4]", "[]"))  # fmt: skip


def _every(r: random.Random) -> Task:
    k = r.randint(2, 9)
    name = r.choice(["items", "values", "sequence"])
    return Task(f"every_{k}th", name, f"Return every {k}th item of a list, beginning with the first.",
                f"return {name}[::{k}]",
                (f"return {name}[{k}::]", f"return {name}[:{k}:]", f"return {name}[1::{k}]"),
                (f"{_some(r, 12)}", f"{list(range(20))}", "[]", "['a', 'b', 'c']"))  # fmt: skip


def _count_letter(r: random.Random) -> Task:
    letter = r.choice("aeinorst")
    return Task(f"count_{letter}", "text",
                f"Return how often the letter {letter!r} is in text, large or small.",
                f"return text.lower().count({letter!r})",
                (f"return text.upper().count({letter!r})", f"return text.lower().find({letter!r})",
                 f"return text.lower().rfind({letter!r})"),
                ("'Rain on Stones'", f"'{letter.upper()}{letter}x'", "''", "'banana'"))  # fmt: skip


def _join(r: random.Random) -> Task:
    mark = r.choice(["-", ", ", "/", " and ", "_", ":"])
    what = r.choice(["words", "names", "parts"])
    return Task(f"join_{what}", what, f"Return the {what}, sorted, as one text with {mark!r} between them.",
                f"return {mark!r}.join(sorted({what}))",
                (f"return {mark!r}.join(list({what}))", f"return sorted({mark!r}.join({what}))",
                 f"return {mark!r}.join(reversed({what}))"),
                ("['b', 'a', 'c']", "['one']", "[]", "['pear', 'fig', 'apple']"))  # fmt: skip


def _clamped(r: random.Random) -> Task:
    what = r.choice(["x", "n"])
    low = r.randint(-20, 10)
    high = low + r.randint(5, 60)
    return Task("clamp", what, f"Return {what}, but not below {low} and not above {high}.",
                f"return max({low}, min({high}, {what}))",
                (f"return min({low}, max({high}, {what}))", f"return max({high}, min({low}, {what}))",
                 f"return max({low}, max({high}, {what}))"),
                (f"{low - 3}", f"{high + 4}", f"{low + 2}", "0"))  # fmt: skip


def _palindrome(r: random.Random) -> Task:
    what = r.choice(["text", "s", "word", "line"])
    name = r.choice(["is_palindrome", "reads_the_same_backwards", "is_mirrored"])
    doc, given = r.choice(
        [("whatever its case", f"{what} = {what}.lower()\n"), ("case by case", "")]
    )
    words = ("'Otto'", "'noon'", "''", "'stone'", "'Level'", "'kayak'")
    return Task(name, what, f"Return True if {what} reads the same backwards, {doc}.",
                f"{given}return {what} == {what}[::-1]",
                (f"{given}return {what} == {what}[::1]", f"{given}return {what} != {what}[::-1]",
                 f"{given}return {what} == {what}[::-2]"), words)  # fmt: skip


def _frequencies(r: random.Random) -> Task:
    what, one = r.choice([("words", "word"), ("items", "item"), ("letters", "letter"), ("names", "name"),
                          ("cities", "city"), ("marks", "mark")])  # fmt: skip
    name = r.choice([f"count_{what}", "frequencies", f"tally_{what}"])

    def body(start: int, change: str) -> str:
        return f"counts = {{}}\nfor {one} in {what}:\n    counts[{one}] = counts.get({one}, {start}) {change}\nreturn counts"

    return Task(name, what, f"Return a dictionary from each {one} to how often it is in {what}.",
                body(0, "+ 1"), (body(1, "+ 1"), body(0, "- 1"), body(1, "+ 0")),
                ("['a', 'b', 'a']", "[]", "['x', 'x', 'x']", "['p', 'q', 'r', 'q']"))  # fmt: skip


def _ranked(r: random.Random) -> Task:
    rank, place = r.choice([("second", 2), ("third", 3)])
    word, largest = r.choice([("largest", True), ("smallest", False)])
    what = r.choice(["numbers", "values", "scores", "prices", "ages"])
    step, other = (-place, place - 1) if largest else (place - 1, -place)
    return Task(f"{rank}_{word}", what, f"Return the {rank} {word} of the different {what}.",
                f"return sorted(set({what}))[{step}]",
                (f"return sorted(set({what}))[{other}]", f"return sorted(list({what}))[{step}]",
                 f"return sorted(set({what}))[{-step}]"),
                ("[4, 3, 1, 2]", "[5, 5, 4, 1, 0, 0]", f"{[*_some(r, 8, 0, 40), 60, 61, 62, 62, -1, -2]}",
                 "[-1, -2, -3, -4, -4]"))  # fmt: skip


def _running(r: random.Random) -> Task:
    word, op, start = r.choice([("sums", "+", 0), ("products", "*", 1)])
    what = r.choice(["numbers", "values", "steps", "factors", "terms"])
    name = r.choice([f"running_{word}", f"cumulative_{word}"])
    first = f"total, result = {start}, []\nfor n in {what}:\n"
    step, keep, end = f"    total = total {op} n\n", "    result.append(total)\n", "return result"
    return Task(name, what, f"Return the list of the {word} of the first one, two, three … {what}.",
                first + step + keep + end,
                (first + keep + step + end, first + step + "    result.append(n)\n" + end,
                 first + "    total = total - n\n" + keep + end),
                ("[1, 2, 3, 4]", "[5, 2]", "[]", "[2, -1, 3]"))  # fmt: skip


def _dedupe(r: random.Random) -> Task:
    what = r.choice(["items", "values", "names", "numbers"])

    def body(over: str, test: str) -> str:
        return f"result = []\nfor x in {over}:\n    if x {test}:\n        result.append(x)\nreturn result"

    return Task(r.choice(["without_repeats", "unique", "distinct"]), what,
                f"Return the {what} without repetitions, in the order in which they come first.",
                body(what, "not in result"),
                (body(what, "in result"), body(what, f"not in {what}"), body(f"reversed({what})", "not in result")),
                ("[3, 1, 3, 2, 1]", "[]", "['b', 'a', 'b']", "[7, 7, 7]"))  # fmt: skip


def _chunks(r: random.Random) -> Task:
    k = r.randint(2, 6)
    what = r.choice(["items", "values", "sequence"])

    def body(end: str, step: int) -> str:
        return f"return [{what}[i:{end}] for i in range(0, len({what}), {step})]"

    return Task(f"groups_of_{k}", what, f"Split a list into lists of {k}; the last may be shorter.",
                body(f"i + {k}", k), (body(f"i * {k}", k), body(f"i + {k - 1}", k), body(f"i + {k}", k + 1)),
                ("[1, 2, 3, 4, 5, 6, 7]", "[]", "['a']", f"{list(range(3 * k))}"))  # fmt: skip


def _gcd(r: random.Random) -> Task:
    a, b = r.choice([("a", "b"), ("m", "n"), ("x", "y")])
    name = r.choice(["gcd", "greatest_common_divisor", "largest_common_divisor"])
    k, m, n = r.randint(2, 20), r.randint(2, 30), r.randint(2, 30)

    def body(after: str, result: str) -> str:
        return f"while {b}:\n    {a}, {b} = {after}\nreturn {result}"

    return Task(name, f"{a}, {b}", f"Return the greatest common divisor of {a} and {b}.",
                body(f"{b}, {a} % {b}", a),
                (body(f"{b}, {a} // {b}", a), body(f"{b}, {a} % {b}", b), body(f"{b} % {a}, {a}", a)),
                ("12, 18", "7, 5", f"{k * m}, {k * n}", "9, 0"))  # fmt: skip


def _primes(r: random.Random) -> Task:
    word, first = r.choice([("up to", "n + 1"), ("below", "n")])
    name = r.choice(["primes", "prime_numbers", "all_primes"])
    bounds = tuple(str(n) for n in (r.randint(10, 60), 2, 3, 1, r.choice([25, 29, 49])))

    def body(start: int, every: str, least: int) -> str:
        return f"return [p for p in range({start}, {first}) if {every}(p % d for d in range({least}, p))]"

    return Task(name, "n", f"Return the prime numbers {word} n, in a list.", body(2, "all", 2),
                (body(1, "all", 2), body(2, "any", 2), body(2, "all", 1)), bounds)  # fmt: skip


def _run_lengths(r: random.Random) -> Task:
    what = r.choice(["text", "s", "letters"])
    name = r.choice(["run_lengths", "compress", "encode_runs"])

    def body(same: str, more: int, start: int) -> str:
        step = f"        result[-1] = (c, result[-1][1] + {more})\n    else:\n        result.append((c, {start}))\n"
        return f"result = []\nfor c in {what}:\n    if result and result[-1][0] {same} c:\n{step}return result"

    sample = "".join(r.choice("ab") * r.randint(1, 4) for _ in range(4))
    return Task(name, what, f"Return a list of pairs (letter, how often it is repeated there) for {what}.",
                body("==", 1, 1), (body("==", 1, 0), body("!=", 1, 1), body("==", 2, 1)),
                ("'aaabcc'", "''", f"'{sample}'", "'xyx'"))  # fmt: skip


def _balanced(r: random.Random) -> Task:
    left, right = r.choice(["()", "[]", "{}", "<>"])
    name = r.choice(["is_balanced", "brackets_match", "well_nested"])

    def body(wrong: str, end: str) -> str:
        loop = f"for c in text:\n    if c == {left!r}:\n        depth += 1\n    elif c == {right!r}:\n        depth -= 1\n"
        return f"depth = 0\n{loop}        if depth {wrong} 0:\n            return False\nreturn depth {end} 0"

    calls = ("(a(b)c)", ")(", "((", "", "()()")
    return Task(name, "text", f"Return True if every {left!r} in text is closed by a {right!r} after it.",
                body("<", "=="), (body(">", "=="), body("<", "!="), body("<=", "==")),
                tuple(repr(t.replace("(", left).replace(")", right)) for t in calls))  # fmt: skip


def _base(r: random.Random) -> Task:
    base = r.randint(2, 9)
    name = r.choice(["to_base", "digits_in_base", "in_base"])

    def body(step: str, zero: str) -> str:
        return f"digits = ''\nwhile n:\n    digits = {step}\n    n //= {base}\nreturn digits or {zero!r}"

    return Task(f"{name}_{base}", "n", f"Return the digits of n in base {base} as a text; n is not negative.",
                body(f"str(n % {base}) + digits", "0"),
                (body(f"digits + str(n % {base})", "0"), body(f"str(n // {base}) + digits", "0"),
                 body(f"str(n % {base}) + digits", "1")),
                ("0", "1", f"{r.randint(50, 400)}", f"{base**3}"))  # fmt: skip


def _fibonacci(r: random.Random) -> Task:
    a, b = r.choice([(0, 1), (1, 1), (2, 1), (1, 2), (1, 3), (2, 5), (3, 4), (0, 2)])
    name = r.choice(["sequence", "sums_of_two", "series"])

    def body(following: str, end: str) -> str:
        return f"result = [{a}, {b}]\nwhile len(result) < n:\n    result.append({following})\nreturn result[{end}]"

    return Task(name, "n", f"Return the first n numbers of the sequence that begins with {a}, {b} and goes on "
                "with the sum of the two numbers before.",
                body("result[-1] + result[-2]", ":n"),
                (body("result[-1] + result[-1]", ":n"), body("result[-1] - result[-2]", ":n"),
                 body("result[-1] + result[-2]", "n:")),
                ("0", "1", "2", "8"))  # fmt: skip


def _intervals(r: random.Random) -> Task:
    name = r.choice(["merge_intervals", "join_ranges", "merged", "union_of_intervals"])
    what = r.choice(["intervals", "ranges", "spans"])

    def body(touch: str, end: str) -> str:
        step = f"        result[-1] = (result[-1][0], {end})\n    else:\n        result.append((a, b))\n"
        return f"result = []\nfor a, b in sorted({what}):\n    if result and a {touch} result[-1][1]:\n{step}return result"

    a = r.randint(1, 9)
    return Task(name, what, f"Merge {what}, pairs (a, b) with a <= b, that overlap or touch; return them sorted.",
                body("<=", "max(b, result[-1][1])"),
                (body("<=", "min(b, result[-1][1])"), body(">=", "max(b, result[-1][1])"),
                 body("<=", "max(a, result[-1][1])")),
                ("[(1, 3), (2, 5), (8, 9)]", "[]", f"[({a}, {a + 9}), ({a + 1}, {a + 2})]", "[(4, 6), (1, 4)]"))  # fmt: skip


TASKS: list[list[Callable[[random.Random], Task]]] = [
    [_add, _scale, _larger, _divisible, _wrap],
    [_count_above, _sum_if, _every, _count_letter, _join, _clamped],
    [_palindrome, _frequencies, _ranked, _running, _dedupe, _chunks],
    [_gcd, _primes, _run_lengths, _balanced, _base, _fibonacci, _intervals],
]


def _question(r: random.Random, grade: int) -> dict[str, Any]:
    task = r.choice(TASKS[grade])(r)
    asked = choose(r, task.prompt, indented(task.right), [indented(body) for body in task.wrong])
    return {**asked, "about": task.about}


def _problem(r: random.Random, grade: int) -> dict[str, Any]:
    task = r.choice(TASKS[grade])(r)
    return {
        "prompt": task.prompt,
        "about": task.about,
        "check": {"kind": "program", "tests": task.tests()},
        "max_tokens": (32, 48, 96, 128)[grade],
        "stop": ["\ndef ", "\nclass ", "\nif ", "\nprint", "\n#", "\n@", "\n```"],
    }


def items(seed: int) -> Iterator[dict[str, Any]]:
    """Yield questions and problems."""
    yield from make("code", "question", seed, _question)
    yield from make("code", "problem", seed, _problem)
