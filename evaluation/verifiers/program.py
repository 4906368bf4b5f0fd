"""Checks of replies that are programs: run in the sandbox, with their values compared outside of it.

A test is `assert CALL == VALUE`, `assert CALL` or `assert not CALL`; VALUE is a Python literal.
Only CALL goes into the sandbox. The program never sees the values, so it can pass only by computing
them. Floats may differ by 1e-9 of their size. `ItemCheck` and `Rating` serve the other checks as well.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agent_forge.evaluation.sandbox.sandbox import Sandbox

#: A block of Markdown code, its language left out.
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:\n```|\Z)", re.DOTALL)


class ItemCheck(BaseModel):
    """Base class of an item's check: frozen, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def no_truth(value: object) -> object:
    """Return the value; raise ValueError for true and false, which pydantic takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a number")
    return value


@dataclass(frozen=True)
class Rating:
    """Score of a reply, from 0 (wrong) to 1 (right), and what is wrong with it."""

    score: float
    why: str = ""
    #: False if the verifier itself failed: the item counts 0, and the event says why.
    scored: bool = True


RIGHT = Rating(1.0)


def wrong(why: str) -> Rating:
    """Return a Rating of score 0 with the reason."""
    return Rating(0.0, why)


def fenced(reply: str) -> str | None:
    """Return the content of the first fenced code block of a reply; None without one."""
    match = _FENCE.search(reply)
    return match.group(1) if match else None


CLOSE = 1e-9


class Program(ItemCheck):
    """`tests` must all pass. The reply continues the prompt; with `completes: false` it stands
    alone, as a chat model's answer does, and as a fenced code block that opens the reply does.
    """

    kind: Literal["program"]
    tests: Annotated[tuple[str, ...], Field(min_length=1)]
    completes: bool = True

    _are_tests = field_validator("tests")(lambda tests: parsed(tests))


def parsed(tests: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tuple `tests` as it is. Raises ValueError if one of them cannot be parsed."""
    for test in tests:
        parse(test)
    return tests


def parse(test: str) -> tuple[str, object]:
    """Return (expression, its expected value). Raises ValueError, which says what a test is."""
    problem = f"test {test[:200]!r} is not `assert CALL == VALUE` with a literal VALUE"
    try:
        body = ast.parse(test.strip()).body
        if len(body) != 1 or not isinstance(body[0], ast.Assert):
            raise ValueError("it is no single assertion")
        return _parse_condition(body[0].test)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{problem}: {error}") from error


def _parse_condition(test: ast.expr) -> tuple[str, object]:
    """Return (expression, its expected value) of an assertion's condition. Raises ValueError."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        try:
            return ast.unparse(test.left), ast.literal_eval(test.comparators[0])
        except (ValueError, TypeError) as error:  # which names a place in memory
            raise ValueError("its VALUE is no literal") from error
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return f"not not ({ast.unparse(test.operand)})", False
    return f"not not ({ast.unparse(test)})", True


def verify(check: Program, prompt: str, reply: str, sandbox: Sandbox) -> Rating:
    """Return a Rating: 1 if every test passes, else 0. Raises SandboxUnavailableError."""
    source = prompt + reply if check.completes else reply
    if not check.completes or reply.lstrip().startswith("```"):
        inner = fenced(reply)
        source = source if inner is None else inner
    tests = [parse(test) for test in check.tests]
    ran = sandbox.run(source, [call for call, _ in tests])
    if ran.why:
        return wrong(ran.why)
    for (call, meant), text, error in zip(tests, ran.values, ran.errors, strict=True):
        if text is None:
            return wrong(f"{call}: {error}"[:200])
        if not _equal(text, meant):
            return wrong(f"{call} is {text}, not {meant!r}"[:200])
    return RIGHT


def _equal(text: str, meant: object) -> bool:
    """Return True if the text of a value is a Python literal equal to the expected value."""
    try:
        return same(ast.literal_eval(text), meant)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError, ArithmeticError):
        return False  # not a literal, or a number that cannot be compared with the expected one


def same(a: Any, b: Any) -> bool:
    """Return True if two values are equal in Python, or nearly so for floats.

    Lists, tuples, sets and dictionaries are compared part by part.
    """
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or (isinstance(a + b, float) and math.isclose(a, b, rel_tol=CLOSE, abs_tol=CLOSE))
    if type(a) is not type(b):
        return False
    if isinstance(a, Sequence) and not isinstance(a, str | bytes):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b
