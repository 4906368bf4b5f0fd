"""Numbers: the reply's result is compared as a number, exactly unless a tolerance is given.

The result is the first number after the last mark of an answer ("answer:", "answer is", "####",
"\\boxed{"). Without such a mark, the result is the last number of the reply. Thousands may be
separated by commas; fractions (3/4) and exponents (1e3) are numbers; a unit may follow (5km).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from agent_forge.evaluation.verifiers.program import RIGHT, ItemCheck, Rating, no_truth, wrong

_PLAIN = r"[-+−]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+|(?=\.\d))(?:\.\d+)?(?:[eE][-+]?\d{1,3})?"
_NUMBER = re.compile(rf"(?<![\w.])({_PLAIN})(?:\s*/\s*(\d+))?(?![\d]|[.,]\d)")
_SIGN = re.compile(r"(?:answer\s*(?:is|:|=)|####|\\boxed\{)\s*\$?\s*", re.IGNORECASE)


class Number(ItemCheck):
    """`answer` is a number, or its text; `tolerance` is an absolute difference."""

    kind: Literal["number"]
    answer: Annotated[int | float | str, BeforeValidator(no_truth)]
    tolerance: Annotated[float, Field(ge=0), BeforeValidator(no_truth)] = 0.0

    @field_validator("answer")
    @classmethod
    def _is_a_number(cls, value: int | float | str) -> int | float | str:
        if parse(str(value)) is None:
            raise ValueError(f"{value!r} is not a number")
        return value


def parse(text: str) -> Fraction | None:
    """Return the number that is the whole text, a Fraction; None if the text is no number."""
    match = _NUMBER.fullmatch(text.strip())
    return None if match is None else _value(match)


def result(reply: str) -> Fraction | None:
    """Return the number after a reply's last "answer is" or "####", else its last one, or None."""
    every = [*_NUMBER.finditer(reply)]
    if not every:
        return None
    starts = [match.start() for match in every]
    for sign in reversed([*_SIGN.finditer(reply)]):
        place = bisect_left(starts, sign.end())
        if place < len(every):
            return _value(every[place])
    return _value(every[-1])


def _value(match: re.Match[str]) -> Fraction | None:
    try:
        above = Fraction(match.group(1).replace(",", "").replace("−", "-"))
        return above / int(match.group(2) or 1)
    except (ValueError, ZeroDivisionError):  # thousands of digits, or nothing to divide by
        return None


def verify(check: Number, reply: str) -> Rating:
    """Return a Rating: 1 if the reply's result is the answer within the tolerance, else 0."""
    number = result(reply)
    if number is None:
        return wrong("no number")
    expected = parse(str(check.answer))
    assert expected is not None
    if abs(number - expected) <= Fraction(check.tolerance):
        return RIGHT
    return wrong(f"the number {float(number):g}" if abs(number) < 10**300 else "too large a number")
