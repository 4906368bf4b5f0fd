"""Calculator: exact arithmetic on integers, decimals and fractions, by a parser of its own.

    sum     = product {("+" | "-") product}
    product = signed {("*" | "/" | "//" | "%") signed}
    signed  = ["+" | "-"] signed | power
    power   = atom ["**" signed]
    atom    = NUMBER | "(" sum ")"

No Python code is evaluated. Values are fractions, so 0.1 + 0.2 is 0.3. Operators bind as in Python.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from agent_forge.tools.calls import ToolError

#: Limits: bits of a numerator or denominator, depth of brackets, and characters of an expression.
BITS, DEPTH, CHARACTERS = 4_096, 50, 500
_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?)|(\*\*|//|[-+*/%()]))", re.ASCII)

_Operator = Callable[[Fraction, Fraction], Fraction]
_SUMS: Mapping[str, _Operator] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Mapping[str, _Operator] = {
    "*": operator.mul,
    "/": operator.truediv,
    "//": lambda a, b: Fraction(a // b),
    "%": operator.mod,
}


class Calculator:
    """Tool `calc`: `calc: (17 + 5) * 3` → `66`."""

    usage = "EXPRESSION: the exact value, with + - * / // % ** and brackets"

    def run(self, arguments: str) -> str:
        """Return an expression's value as text: `66`, `0.3` or `1/3`. Raises ToolError."""
        return _text(evaluate(arguments))


def evaluate(expression: str) -> Fraction:
    """Return the exact value of an expression as a Fraction.

    Raises ToolError for a syntax error, a division by zero or a number that is too large.
    """
    if len(expression) > CHARACTERS:
        raise ToolError(f"the expression is longer than {CHARACTERS} characters")
    parser = _Parser(_tokens(expression))
    value = parser.sum(0)
    if parser.rest:
        raise ToolError(f"unexpected {parser.rest[0]!r}")
    return value


def _tokens(expression: str) -> list[str]:
    """Return the expression's numbers and operators as texts. Raises ToolError for other characters."""
    tokens, at, text = list[str](), 0, expression.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ToolError(f"unexpected {text[at:].strip()[:1]!r}")
        tokens.append(match[1] or match[2])
        at = match.end()
    return tokens


class _Parser:
    """Recursive descent over the tokens in `rest`."""

    def __init__(self, tokens: list[str]) -> None:
        self.rest = tokens

    def _next(self, choices: Mapping[str, object] | str) -> str | None:
        """Remove and return the next token if it is one of `choices`; else return None."""
        return self.rest.pop(0) if self.rest and self.rest[0] in choices else None

    def sum(self, depth: int) -> Fraction:
        value = self._product(depth)
        while sign := self._next(_SUMS):
            value = _bounded(_SUMS[sign](value, self._product(depth)))
        return value

    def _product(self, depth: int) -> Fraction:
        value = self._signed(depth)
        while sign := self._next(_PRODUCTS):
            other = self._signed(depth)
            if sign != "*" and other == 0:
                raise ToolError("division by zero")
            value = _bounded(_PRODUCTS[sign](value, other))
        return value

    def _signed(self, depth: int) -> Fraction:
        if depth > DEPTH:
            raise ToolError("nested too deep")
        if sign := self._next(_SUMS):
            value = self._signed(depth + 1)
            return -value if sign == "-" else value
        return self._power(depth)

    def _power(self, depth: int) -> Fraction:
        base = self._atom(depth)
        if not self._next({"**": None}):
            return base
        exponent = self._signed(depth + 1)
        if exponent.denominator != 1:
            raise ToolError("an exponent must be whole")
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent) * size > BITS:
            raise ToolError("the number is too large")
        if base == 0 and exponent < 0:
            raise ToolError("division by zero")
        return base ** int(exponent)

    def _atom(self, depth: int) -> Fraction:
        if self._next({"(": None}):
            value = self.sum(depth + 1)
            if not self._next({")": None}):
                raise ToolError("a bracket is not closed")
            return value
        if not self.rest:
            raise ToolError("the expression ends too early")
        token = self.rest.pop(0)
        if not token[0].isdigit():
            raise ToolError(f"unexpected {token!r}")
        return _bounded(Fraction(token))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > BITS:
        raise ToolError("the number is too large")
    return value


def _text(value: Fraction) -> str:
    """Return a value as text: a whole number, a finite decimal, or else a fraction in lowest terms."""
    if value.denominator == 1:
        return str(value.numerator)
    rest, places = value.denominator, 0
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest, power = rest // prime, power + 1
        places = max(places, power)
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' * (value < 0)}{digits[:-places]}.{digits[-places:]}"
