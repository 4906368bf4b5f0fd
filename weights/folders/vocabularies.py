"""Vocabularies of tokenizers: whether the same numbers stand for the same tokens in two model folders.

Two models may have the same number of tokens, and other tokens. A merge then adds rows of embeddings
that stand for other tokens. Tokens that a fine-tuning added behind the vocabulary are left out: most
of them replace reserved ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from runs.errors import SourceError
from runs.system import bounded_files

FILE = "tokenizer.json"


class Difference(NamedTuple):
    """Numbers that stand for other tokens in two vocabularies."""

    #: Numbers that both have, and those of them with other tokens.
    shared: int
    other: int
    #: The first of those, and its tokens.
    number: int
    tokens: tuple[str, str]

    @property
    def foreign(self) -> bool:
        """True if most numbers stand for other tokens: the models were made for other tokenizers."""
        return 2 * self.other > self.shared

    def told(self, one: str, other: str) -> str:
        """Return the difference in words, with names of the two models."""
        first, second = (repr(token)[:60] for token in self.tokens)
        return (
            f"{one} and {other} have other tokenizers: {self.other:,} of {self.shared:,} numbers stand "
            f"for other tokens, {self.number} for {first} and {second}"
        )


def difference(one: Path, other: Path) -> Difference | None:
    """Return how the vocabularies of two model folders differ.

    None if they do not, or if one of the folders has no vocabulary in a tokenizer.json.
    """
    files = one / FILE, other / FILE
    if not all(file.is_file() for file in files) or files[0].samefile(files[1]):
        return None
    left, right = (_tokens(file) for file in files)
    wrong = sorted(n for n in left if n in right and left[n] != right[n])
    if not wrong:
        return None
    shared = sum(number in right for number in left)
    return Difference(shared, len(wrong), wrong[0], (left[wrong[0]], right[wrong[0]]))


def _tokens(file: Path) -> dict[int, str]:
    """Return number → token of a tokenizer.json, without added tokens; empty if it has another form."""
    try:
        model: Any = bounded_files.read_object(file).get("model")
    except SourceError:
        return {}  # what loads the tokenizer says what is wrong with it
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # a unigram model: tokens with scores, in order
        pairs = ((n, one[0]) for n, one in enumerate(vocabulary) if isinstance(one, list) and one)
    elif isinstance(vocabulary, dict):
        pairs = ((number, token) for token, number in vocabulary.items())
    else:
        return {}
    return {n: token for n, token in pairs if isinstance(n, int) and isinstance(token, str)}
