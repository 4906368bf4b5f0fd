"""Base of task families: items, random draws by key, verification of replies.

Symbols of a prompt and of an answer are separated by blanks, so that no token covers several of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

#: Levels of difficulty: 1 … LEVELS.
LEVELS = 10
#: Bits that one hash gives, and bits beyond a range, so that every value is as likely as another.
_BITS, _SPARE = 512, 64


class Draws:
    """Random integers from a key: BLAKE2b of the key and a counter."""

    def __init__(self, *key: str | int) -> None:
        self._key = "/".join(map(str, key)).encode()
        self._count = 0
        self._value, self._range = 0, 1

    def below(self, count: int) -> int:
        """Return an integer from 0 to `count` − 1."""
        if self._range < count << _SPARE:
            text = self._key + b"/%d" % self._count
            self._value = int.from_bytes(hashlib.blake2b(text).digest(), "big")
            self._range, self._count = 1 << _BITS, self._count + 1
        self._value, digit = divmod(self._value, count)
        self._range //= count
        return digit

    def some(self, symbols: str, count: int) -> list[str]:
        """Return `count` symbols, drawn with replacement."""
        return [symbols[self.below(len(symbols))] for _ in range(count)]

    def distinct(self, symbols: str, count: int) -> list[str]:
        """Return `count` different symbols in random order."""
        left = list(symbols)
        return [left.pop(self.below(len(left))) for _ in range(count)]


@dataclass(frozen=True)
class Item:
    """A task: the answer follows from the prompt by the family's rule."""

    family: str
    level: int
    prompt: str
    #: The right answer, without surrounding blanks.
    answer: str
    #: Seed and number, of an item whose answer does not follow from its prompt.
    origin: tuple[int, int] | None = None


class Family(Protocol):
    """The interface of a family."""

    @property
    def what(self) -> str:
        """The task, in words."""
        ...

    def prompt(self, level: int, draws: Draws) -> str:
        """Return a random prompt of a level."""
        ...

    def answer(self, prompt: str) -> str:
        """Return the right answer to a prompt. Raises ValueError for what is no prompt."""
        ...


def body(prompt: str, word: str) -> list[str]:
    """Return the symbols of a prompt between its first word and "=". Raises ValueError for another."""
    first, *symbols, last = prompt.split()
    if (first, last) != (word, "="):
        raise ValueError(f"{prompt!r} is no prompt of {word!r}")
    return symbols


def two_numbers(prompt: str, word: str, sign: str) -> tuple[int, int]:
    """Return the numbers on both sides of a sign. Raises ValueError for another prompt."""
    symbols = body(prompt, word)
    at = symbols.index(sign)
    return int("".join(symbols[:at])), int("".join(symbols[at + 1 :]))


def number(draws: Draws, digits: int) -> int:
    """Return a random number with this many digits; of one digit, 0 is one too."""
    lowest = 10 ** (digits - 1) if digits > 1 else 0
    return lowest + draws.below(10**digits - lowest)


def operands(level: int, draws: Draws) -> tuple[int, int]:
    """Return two numbers of a level: 1 + ⌊level / 2⌋ and ⌈level / 2⌉ digits, in any order."""
    a, b = number(draws, 1 + level // 2), number(draws, (level + 1) // 2)
    return (a, b) if draws.below(2) else (b, a)


def spaced(symbols: object) -> str:
    """Return the characters of a text or a number, separated by blanks."""
    return " ".join(str(symbols))
