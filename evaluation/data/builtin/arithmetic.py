"""Generated arithmetic and word problems, one worksheet a document.

Operands and names come from a `random.Random` seeded by the worksheet's name, so that a worksheet
depends only on (seed, name).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from agent_forge.evaluation.data.slices import Document

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "June", "Kai", "Lena"]
THINGS = ["apples", "books", "coins", "pens", "cards", "stones", "shells", "tickets", "stamps"]


def _addition(r: random.Random) -> str:
    a, b = r.randint(1, 99), r.randint(1, 99)
    return f"{a} + {b} = {a + b}"


def _subtraction(r: random.Random) -> str:
    a, b = sorted((r.randint(1, 99), r.randint(1, 99)), reverse=True)
    return f"{a} - {b} = {a - b}"


def _product(r: random.Random) -> str:
    a, b = r.randint(2, 12), r.randint(2, 12)
    return f"{a} * {b} = {a * b}"


def _quotient(r: random.Random) -> str:
    a, b = r.randint(2, 12), r.randint(2, 12)
    return f"{a * b} / {a} = {b}"


def _comparison(r: random.Random) -> str:
    a, b = r.randint(1, 999), r.randint(1, 999)
    return f"Which is larger, {a} or {b}? {max(a, b)}"


def _gain(r: random.Random) -> str:
    who, what, a, b = r.choice(NAMES), r.choice(THINGS), r.randint(2, 40), r.randint(2, 40)
    return (
        f"{who} has {a} {what} and buys {b} more. "
        f"How many {what} does {who} have now? {a} + {b} = {a + b}. Answer: {a + b}"
    )


def _loss(r: random.Random) -> str:
    who, other = r.sample(NAMES, 2)
    what, b = r.choice(THINGS), r.randint(1, 30)
    a = b + r.randint(1, 40)
    return (
        f"{who} has {a} {what} and gives {b} to {other}. "
        f"How many {what} are left? {a} - {b} = {a - b}. Answer: {a - b}"
    )


def _groups(r: random.Random) -> str:
    what, a, b = r.choice(THINGS), r.randint(2, 12), r.randint(2, 12)
    return (
        f"There are {a} boxes with {b} {what} in each box. "
        f"How many {what} are there in all? {a} * {b} = {a * b}. Answer: {a * b}"
    )


def _sequence(r: random.Random) -> str:
    start, step = r.randint(1, 30), r.randint(2, 12)
    terms = [start + step * i for i in range(6)]
    return f"Continue by adding {step}: " + ", ".join(map(str, terms))


PROBLEMS: list[Callable[[random.Random], str]] = [
    _addition,
    _subtraction,
    _product,
    _quotient,
    _comparison,
    _gain,
    _loss,
    _groups,
    _sequence,
]


def documents(limit: int, seed: int) -> Iterator[Document]:
    """Yield worksheets of 12 to 24 problems until `limit` characters are reached."""
    used, number = 0, 0
    while used < limit:
        name = f"worksheet-{number:05d}.txt"
        r = random.Random(f"arithmetic/{seed}/{name}")
        lines = [r.choice(PROBLEMS)(r) for _ in range(r.randint(12, 24))]
        text = f"Worksheet {number}\n" + "\n".join(lines) + "\n"
        yield Document(name, "math", text)
        used, number = used + len(text), number + 1
