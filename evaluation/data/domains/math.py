"""Domain of mathematics: from sums of one step to problems of several steps, the result a number.

The same tasks serve both ways: as questions with near misses for models that are compared by
likelihood, as problems for models that can work them out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from agent_forge.evaluation.data.builtin.arithmetic import NAMES, THINGS
from agent_forge.evaluation.data.domains.common import choose, make

#: (text of the problem, its result)
Task = tuple[str, int]


def _sum(r: random.Random) -> Task:
    a, b = r.randint(2, 49), r.randint(2, 49)
    return f"What is {a} + {b}?", a + b


def _difference(r: random.Random) -> Task:
    b, rest = r.randint(2, 49), r.randint(1, 49)
    return f"What is {b + rest} - {b}?", rest


def _product(r: random.Random) -> Task:
    a, b = r.randint(2, 12), r.randint(2, 12)
    return f"What is {a} * {b}?", a * b


def _three_terms(r: random.Random) -> Task:
    a, b, c = r.randint(5, 60), r.randint(5, 60), r.randint(1, 9)
    return f"What is {a} + {b} - {c}?", a + b - c


def _mixed(r: random.Random) -> Task:
    a, b, c = r.randint(2, 12), r.randint(2, 12), r.randint(2, 40)
    return f"What is {a} * {b} + {c}?", a * b + c


def _quotient(r: random.Random) -> Task:
    a, b = r.randint(3, 15), r.randint(3, 15)
    return f"What is {a * b} / {a}?", b


def _remainder(r: random.Random) -> Task:
    a, b = r.randint(20, 99), r.randint(3, 9)
    return f"What is the remainder when {a} is divided by {b}?", a % b


def _gain_and_loss(r: random.Random) -> Task:
    who, other = r.sample(NAMES, 2)
    what, a, b = r.choice(THINGS), r.randint(10, 60), r.randint(5, 40)
    c = r.randint(1, a + b - 1)
    return (
        f"{who} has {a} {what}, buys {b} more and gives {c} to {other}. "
        f"How many {what} does {who} have now?",
        a + b - c,
    )


def _boxes(r: random.Random) -> Task:
    what, a, b, c = r.choice(THINGS), r.randint(3, 12), r.randint(3, 12), r.randint(2, 20)
    return (
        f"There are {a} boxes with {b} {what} in each box, and {c} {what} on the table. "
        f"How many {what} are there in all?",
        a * b + c,
    )


def _shared(r: random.Random) -> Task:
    who, what = r.choice(NAMES), r.choice(THINGS)
    friends, each = r.randint(3, 9), r.randint(3, 12)
    rest = r.randint(2, friends - 1)
    return (
        f"{who} has {friends * each + rest} {what} and gives the same number to each of {friends} "
        f"friends. {rest} {what} are left. How many does each friend get?",
        each,
    )


def _percent(r: random.Random) -> Task:
    share, whole = r.choice([10, 20, 25, 30, 40, 50, 60, 75, 80]), 20 * r.randint(2, 30)
    while share * whole % 100:
        whole += 20
    return f"What is {share} percent of {whole}?", share * whole // 100


def _price(r: random.Random) -> Task:
    what, count, price = r.choice(THINGS), r.randint(3, 9), r.randint(3, 15)
    paid = (count * price // 20 + 1) * 20
    return (
        f"{count} {what} cost {price} coins each. You pay with {paid} coins. "
        "How many coins do you get back?",
        paid - count * price,
    )


def _journey(r: random.Random) -> Task:
    speed, hours, rest = 5 * r.randint(8, 20), r.randint(2, 6), 5 * r.randint(2, 20)
    return (
        f"A train goes {speed} km in an hour. It goes for {hours} hours and then {rest} km more. "
        "How many km does it go in all?",
        speed * hours + rest,
    )


def _sequence(r: random.Random) -> Task:
    first, step, place = r.randint(1, 20), r.randint(3, 12), r.randint(7, 15)
    shown = ", ".join(str(first + step * i) for i in range(4))
    return (
        f"The sequence {shown}, … goes on in the same way. What is its number {place}?",
        first + step * (place - 1),
    )


def _area(r: random.Random) -> Task:
    width, length = r.randint(3, 15), r.randint(3, 15)
    return (
        f"A rectangle is {width} m wide and its outline is {2 * (width + length)} m long. "
        "What is its area in square metres?",
        width * length,
    )


def _unknown(r: random.Random) -> Task:
    a, x, b = r.randint(2, 9), r.randint(2, 20), r.randint(1, 30)
    return f"{a} times a number plus {b} is {a * x + b}. What is the number?", x


TASKS: list[list[Callable[[random.Random], Task]]] = [
    [_sum, _difference, _product],
    [_three_terms, _mixed, _quotient, _remainder],
    [_gain_and_loss, _boxes, _shared, _percent],
    [_price, _journey, _sequence, _area, _unknown],
]


def _question(r: random.Random, grade: int) -> dict[str, object]:
    text, result = r.choice(TASKS[grade])(r)
    near = sorted({result + d for d in (-10, -3, -2, -1, 1, 2, 3, 10)} - {result})
    wrong = [f" {n}" for n in r.sample([n for n in near if n >= 0], 3)]
    return choose(r, f"Question: {text}\nAnswer:", f" {result}", wrong)


def _problem(r: random.Random, grade: int) -> dict[str, object]:
    text, result = r.choice(TASKS[grade])(r)
    return {
        "prompt": f"Question: {text}\nAnswer:",
        "check": {"kind": "number", "answer": result},
        "max_tokens": 12 if grade < 2 else 64,
        "stop": ["\n"] if grade < 2 else ["\nQuestion:", "\n\n"],
    }


def items(seed: int) -> Iterator[dict[str, object]]:
    """Yield multiple-choice questions, then problems answered by a number; all grades in each."""
    yield from make("math", "question", seed, _question)
    yield from make("math", "problem", seed, _problem)
