"""Tasks of the domain of code, grades 0 and 1: an expression or a short loop."""

# A task is a table of texts.

from __future__ import annotations

import random
from collections.abc import Callable

from agent_forge.evaluation.data.domains.common import FunctionTask, some


def _add(r: random.Random) -> FunctionTask:
    k, what = r.randint(2, 99), r.choice(["x", "n", "value"])
    return FunctionTask(
        f"add_{k}",
        what,
        f"Return {what} plus {k}.",
        f"return {what} + {k}",
        (f"return {what} - {k}", f"return {what} * {k}", f"return {what} // {k}"),
        ("0", "5", "-12", "1000"),
    )


def _scale(r: random.Random) -> FunctionTask:
    k, b = r.sample(range(2, 20), 2)
    return FunctionTask(
        f"times_{k}_plus_{b}",
        "x",
        f"Return {k} times x, plus {b}.",
        f"return {k} * x + {b}",
        (f"return {k} * x - {b}", f"return {b} * x + {k}", f"return {k} + x + {b}"),
        ("0", "3", "-4", "11"),
    )


def _larger(r: random.Random) -> FunctionTask:
    a, b = r.sample(["a", "b", "x", "y", "first", "second", "left", "right"], 2)
    word, op, other = r.choice([("larger", ">", "<"), ("smaller", "<", ">")])
    return FunctionTask(
        f"{word}_of",
        f"{a}, {b}",
        f"Return the {word} of {a} and {b}.",
        f"return {a} if {a} {op} {b} else {b}",
        (
            f"return {a} if {a} {other} {b} else {b}",
            f"return {b} if {a} {op} {b} else {a}",
            f"return {b} if {b} {other} {a} else {a}",
        ),
        ("1, 2", "7, -3", "4, 4", "-5, -6"),
    )


def _divisible(r: random.Random) -> FunctionTask:
    k = r.randint(2, 30)
    return FunctionTask(
        f"is_divisible_by_{k}",
        "n",
        f"Return True if n can be divided by {k}, else False.",
        f"return n % {k} == 0",
        (f"return n // {k} == 0", f"return n % {k} != 0", f"return n % {k} == 1"),
        ("0", f"{k * 7}", f"{k * 7 + 1}", f"{-k}"),
    )


def _wrap(r: random.Random) -> FunctionTask:
    left, right = r.choice([("(", ")"), ("[", "]"), ("<", ">"), ("{", "}"), ("#", "!"), ("+", "-")])
    what = r.choice(["text", "s", "word", "name"])
    return FunctionTask(
        r.choice(["wrap", "enclose", "surround"]),
        what,
        f"Return {what} with {left!r} before it and {right!r} after it.",
        f"return {left!r} + {what} + {right!r}",
        (
            f"return {what} + {left!r} + {right!r}",
            f"return {right!r} + {what} + {left!r}",
            f"return {left!r} + {right!r} + {what}",
        ),
        ("'a'", "''", "'two words'"),
    )


def _count_above(r: random.Random) -> FunctionTask:
    k = r.randint(-5, 30)
    return FunctionTask(
        r.choice(["count_above", "how_many_above"]),
        "numbers",
        f"Return how many of the numbers are greater than {k}.",
        f"return sum(1 for n in numbers if n > {k})",
        (
            f"return sum(n for n in numbers if n > {k})",
            f"return sum(1 for n in numbers if n < {k})",
            f"return sum(1 for n in numbers if n == {k})",
        ),
        (f"{some(r, 6)}", f"{[*some(r, 4), k]}", f"[{k}, {k + 1}, {k + 2}]", "[]"),
    )


def _sum_if(r: random.Random) -> FunctionTask:
    word, test, other = r.choice(
        [
            ("even", "n % 2 == 0", "n % 2 == 1"),
            ("odd", "n % 2 == 1", "n % 2 == 0"),
            ("positive", "n > 0", "n < 0"),
            ("negative", "n < 0", "n > 0"),
        ]
    )
    name = r.choice(["numbers", "values", "items", "data"])
    return FunctionTask(
        f"sum_of_{word}",
        name,
        f"Return the sum of the {word} ones of {name}.",
        f"return sum(n for n in {name} if {test})",
        (
            f"return sum(n for n in {name} if {other})",
            f"return sum(1 for n in {name} if {test})",
            f"return list(n for n in {name} if {test})",
        ),
        (f"{some(r, 6)}", f"{some(r, 5)}", "[1, 2, -3, -4]", "[]"),
    )


def _every(r: random.Random) -> FunctionTask:
    k = r.randint(2, 9)
    name = r.choice(["items", "values", "sequence"])
    return FunctionTask(
        f"every_{k}th",
        name,
        f"Return every {k}th item of a list, beginning with the first.",
        f"return {name}[::{k}]",
        (f"return {name}[{k}::]", f"return {name}[:{k}:]", f"return {name}[1::{k}]"),
        (f"{some(r, 12)}", f"{list(range(20))}", "[]", "['a', 'b', 'c']"),
    )


def _count_letter(r: random.Random) -> FunctionTask:
    letter = r.choice("aeinorst")
    return FunctionTask(
        f"count_{letter}",
        "text",
        f"Return how often the letter {letter!r} is in text, large or small.",
        f"return text.lower().count({letter!r})",
        (
            f"return text.upper().count({letter!r})",
            f"return text.lower().find({letter!r})",
            f"return text.lower().rfind({letter!r})",
        ),
        ("'Rain on Stones'", f"'{letter.upper()}{letter}x'", "''", "'banana'"),
    )


def _join(r: random.Random) -> FunctionTask:
    mark = r.choice(["-", ", ", "/", " and ", "_", ":"])
    what = r.choice(["words", "names", "parts"])
    return FunctionTask(
        f"join_{what}",
        what,
        f"Return the {what}, sorted, as one text with {mark!r} between them.",
        f"return {mark!r}.join(sorted({what}))",
        (
            f"return {mark!r}.join(list({what}))",
            f"return sorted({mark!r}.join({what}))",
            f"return {mark!r}.join(reversed({what}))",
        ),
        ("['b', 'a', 'c']", "['one']", "[]", "['pear', 'fig', 'apple']"),
    )


def _clamped(r: random.Random) -> FunctionTask:
    what = r.choice(["x", "n"])
    low = r.randint(-20, 10)
    high = low + r.randint(5, 60)
    return FunctionTask(
        "clamp",
        what,
        f"Return {what}, but not below {low} and not above {high}.",
        f"return max({low}, min({high}, {what}))",
        (
            f"return min({low}, max({high}, {what}))",
            f"return max({high}, min({low}, {what}))",
            f"return max({low}, max({high}, {what}))",
        ),
        (f"{low - 3}", f"{high + 4}", f"{low + 2}", "0"),
    )


#: Makers of tasks, by grade.
TASKS: list[list[Callable[[random.Random], FunctionTask]]] = [
    [_add, _scale, _larger, _divisible, _wrap],
    [_count_above, _sum_if, _every, _count_letter, _join, _clamped],
]
