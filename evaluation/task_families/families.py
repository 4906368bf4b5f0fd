"""Task families: items drawn by key, whose answers follow from the prompt by the family's rule.

`chain` follows arrows between symbols; `lookup` finds the value of a key, and `recall` after a long
stretch of filler; `reversal`, `sort-digits` and `sort-letters` reorder symbols; `addition` and
`subtraction` compute digit by digit; `automaton-0` … `automaton-255` step a cellular automaton.
Symbols are separated by blanks, so that no token covers several of them.

Wolfram 1983, "Statistical mechanics of cellular automata": the new value of a cell is the bit
4 · left + 2 · own + right of the rule's number. The cells form a ring.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from string import ascii_lowercase, digits
from typing import Protocol


@dataclass(frozen=True)
class Chain:
    """`chain a > c b > a c > b : 2 a =` → `b`.

    Level: ⌈level / 2⌉ steps among level + 2 symbols.
    """

    what = "the symbol that several steps along arrows lead to"

    def prompt(self, level: int, draws: IntegerDraws) -> str:
        """Return a prompt: a random permutation as arrows, the number of steps, the first symbol."""
        symbols = draws.distinct(ascii_lowercase, level + 2)
        ends = draws.distinct("".join(symbols), len(symbols))
        arrows = " ".join(f"{a} > {b}" for a, b in zip(symbols, ends, strict=True))
        return f"chain {arrows} : {(level + 1) // 2} {symbols[draws.below(len(symbols))]} ="

    def answer(self, prompt: str) -> str:
        """Return the symbol at the end. Raises ValueError for a prompt that is not of this family."""
        *arrows, colon, steps, at = body(prompt, "chain")
        if colon != ":" or not 0 < int(steps) < 10:
            raise ValueError(f"{prompt!r} asks for no steps")
        following = dict(zip(arrows[::3], arrows[2::3], strict=True))
        for _ in range(int(steps)):
            if at not in following:
                raise ValueError(f"{prompt!r} has no arrow from {at}")
            at = following[at]
        return at


@dataclass(frozen=True)
class KeyLookup:
    """`look a 3 f 7 c 3 : f =` → `7`. Level: 2 to 11 keys, all different."""

    what = "the value of a key in a table"

    def prompt(self, level: int, draws: IntegerDraws) -> str:
        """Return a prompt: a random table of letters with digits, and one of its letters."""
        keys = draws.distinct(ascii_lowercase, level + 1)
        values = draws.some(digits, level + 1)
        table = " ".join(f"{k} {v}" for k, v in zip(keys, values, strict=True))
        return f"look {table} : {keys[draws.below(len(keys))]} ="

    def answer(self, prompt: str) -> str:
        """Return the digit after the key. Raises ValueError for a key that is not in the table."""
        *table, colon, key = body(prompt, "look")
        if colon != ":":
            raise ValueError(f"{prompt!r} asks for no key")
        return table[1::2][table[::2].index(key)]


#: Keys, and the symbols of the filler: no symbol is both.
KEYS, FILLER = "abcdefghijklmnop", "qrstuvwxyz"
#: Symbols of filler at each level, 1 to 10.
DISTANCES = (4, 8, 16, 32, 64, 96, 128, 160, 192, 256)
PAIRS = 4


@dataclass(frozen=True)
class Recall:
    """`recall a 3 f 7 c 3 k 0 : q r s t : f =` → `7`. Level: the length of the filler.

    The filler repeats its symbols in order, from a random one on: it is easy to predict.
    """

    what = "the value of a key that was told before a stretch of filler"

    def prompt(self, level: int, draws: IntegerDraws) -> str:
        """Return a prompt: four pairs of key and digit, filler, and one of the keys."""
        keys, values = draws.distinct(KEYS, PAIRS), draws.some(digits, PAIRS)
        pairs = " ".join(f"{k} {v}" for k, v in zip(keys, values, strict=True))
        start = draws.below(len(FILLER))
        filler = (FILLER[(start + i) % len(FILLER)] for i in range(DISTANCES[level - 1]))
        return f"recall {pairs} : {' '.join(filler)} : {keys[draws.below(PAIRS)]} ="

    def answer(self, prompt: str) -> str:
        """Return the digit after the key. Raises ValueError for a key that is not told."""
        symbols = body(prompt, "recall")
        pairs, key = symbols[: symbols.index(":")], symbols[-1]
        return pairs[1::2][pairs[::2].index(key)]


@dataclass(frozen=True)
class Reversal:
    """`reverse a b c =` → `c b a`. Level: 2 to 11 letters."""

    what = "a word backwards"

    def prompt(self, level: int, draws: IntegerDraws) -> str:
        """Return a prompt: level + 1 random letters."""
        return f"reverse {' '.join(draws.some(ascii_lowercase, level + 1))} ="

    def answer(self, prompt: str) -> str:
        """Return the letters backwards."""
        return " ".join(reversed(body(prompt, "reverse")))


@dataclass(frozen=True)
class Sorting:
    """`sort 4 1 4 =` → `1 4 4`. Level: 2 to 11 symbols, which may be equal."""

    symbols: str

    @property
    def what(self) -> str:
        """The answer, in words."""
        return f"the symbols of a list in order, of {self.symbols[0]} to {self.symbols[-1]}"

    def prompt(self, level: int, draws: IntegerDraws) -> str:
        """Return a prompt: level + 1 random symbols."""
        return f"sort {' '.join(draws.some(self.symbols, level + 1))} ="

    def answer(self, prompt: str) -> str:
        """Return the symbols in ascending order."""
        return " ".join(sorted(body(prompt, "sort")))


@dataclass(frozen=True)
class Addition:
    """`add 1 7 + 5 =` → `2 2`. Level: digits of the numbers, 1 and 1 up to 6 and 5."""

    what = "the sum of two numbers"

    def prompt(self, level: int, draws: IntegerDraws) -> str:
        """Return a prompt: two random numbers with a plus sign between them."""
        a, b = operands(level, draws)
        return f"add {spaced(a)} + {spaced(b)} ="

    def answer(self, prompt: str) -> str:
        """Return the digits of the sum, separated by blanks."""
        a, b = two_numbers(prompt, "add", "+")
        return spaced(a + b)


@dataclass(frozen=True)
class Subtraction:
    """`subtract 1 7 - 5 =` → `1 2`. Level: digits, as of addition; the larger number is first."""

    what = "the difference of two numbers"

    def prompt(self, level: int, draws: IntegerDraws) -> str:
        """Return a prompt: two random numbers, the larger one first."""
        a, b = sorted(operands(level, draws), reverse=True)
        return f"subtract {spaced(a)} - {spaced(b)} ="

    def answer(self, prompt: str) -> str:
        """Return the digits of the difference, separated by blanks."""
        a, b = two_numbers(prompt, "subtract", "-")
        return spaced(a - b)


#: Number of rules: three cells have eight states.
RULES = 256


@dataclass(frozen=True)
class Automaton:
    """`step 0 1 0 0 0 0 =` → the next state. Level: 6, 8, …, 24 cells."""

    rule: int

    @property
    def what(self) -> str:
        """The answer, in words."""
        return f"the next state of the elementary cellular automaton of rule {self.rule}"

    def prompt(self, level: int, draws: IntegerDraws) -> str:
        """Return a prompt: a random state, each cell 0 or 1."""
        return f"step {' '.join(draws.some('01', 4 + 2 * level))} ="

    def answer(self, prompt: str) -> str:
        """Return the cells of the next state. Raises ValueError for a cell that is not 0 or 1."""
        cells = [("0", "1").index(symbol) for symbol in body(prompt, "step")]
        states = [
            self.rule >> (4 * cells[i - 1] + 2 * cell + cells[(i + 1) % len(cells)]) & 1
            for i, cell in enumerate(cells)
        ]
        return " ".join(map(str, states))


#: Levels of difficulty: 1 … LEVELS.
LEVELS = 10
#: Bits that one hash gives, and bits beyond a range, so that every value is as likely as another.
_BITS, _SPARE = 512, 64


class IntegerDraws:
    """Random integers from a key: BLAKE2b of the key and a counter."""

    def __init__(self, *key: str | int) -> None:
        self._key = "/".join(map(str, key)).encode()
        self._count = 0
        self._value, self._range = 0, 1

    def below(self, count: int) -> int:
        """Return a random integer from 0 to `count` − 1."""
        if self._range < count << _SPARE:
            text = self._key + b"/%d" % self._count
            self._value = int.from_bytes(hashlib.blake2b(text).digest(), "big")
            self._range, self._count = 1 << _BITS, self._count + 1
        self._value, digit = divmod(self._value, count)
        self._range //= count
        return digit

    def some(self, symbols: str, count: int) -> list[str]:
        """Return a list of `count` symbols, drawn with replacement."""
        return [symbols[self.below(len(symbols))] for _ in range(count)]

    def distinct(self, symbols: str, count: int) -> list[str]:
        """Return a list of `count` different symbols in random order."""
        left = list(symbols)
        return [left.pop(self.below(len(left))) for _ in range(count)]


@dataclass(frozen=True)
class Exercise:
    """A task: prompt and answer, with the family and level that it is of."""

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
        """The answer to the family's tasks, in words."""
        ...

    def prompt(self, level: int, draws: IntegerDraws) -> str:
        """Return a random prompt of a level."""
        ...

    def answer(self, prompt: str) -> str:
        """Return the right answer to a prompt. Raises ValueError for another text."""
        ...


def body(prompt: str, word: str) -> list[str]:
    """Return a list of the symbols between a prompt's first word and "=". Raises ValueError."""
    first, *symbols, last = prompt.split()
    if (first, last) != (word, "="):
        raise ValueError(f"{prompt!r} is no prompt of {word!r}")
    return symbols


def two_numbers(prompt: str, word: str, sign: str) -> tuple[int, int]:
    """Return (number before the sign, number after it). Raises ValueError for another prompt."""
    symbols = body(prompt, word)
    at = symbols.index(sign)
    return int("".join(symbols[:at])), int("".join(symbols[at + 1 :]))


def number(draws: IntegerDraws, digits: int) -> int:
    """Return a random number with this many digits, 0 among those of one digit."""
    lowest = 10 ** (digits - 1) if digits > 1 else 0
    return lowest + draws.below(10**digits - lowest)


def operands(level: int, draws: IntegerDraws) -> tuple[int, int]:
    """Return (a, b), in random order: numbers of 1 + ⌊level / 2⌋ and of ⌈level / 2⌉ digits."""
    a, b = number(draws, 1 + level // 2), number(draws, (level + 1) // 2)
    return (a, b) if draws.below(2) else (b, a)


def spaced(symbols: object) -> str:
    """Return the characters of a text or a number, separated by blanks."""
    return " ".join(str(symbols))
