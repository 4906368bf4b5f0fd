"""Documents as windows: every token of a text is predicted once, and its bytes are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.evaluation.data.items import Text
from agent_forge.evaluation.data.packing import Windows, documents, in_turn
from agent_forge.runs.errors import DataError


@dataclass
class Letters:
    """A tokenizer whose tokens are letters; the numbers are their code points."""

    bos_token_id: int | None = None
    eos_token_id: int | None = 1
    unk_token_id: int | None = None
    unk_token: str = "?"
    is_fast: bool = True

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(letter) for letter in text]

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        return {"offset_mapping": [(i, i + 1) for i in range(len(text))]}


def text(words: str) -> Text:
    return Text(id="t", domain="d", slice="test", text=words)


def windows(words: str, context: int, tokenizer: Any = None) -> list[list[int]]:
    [found] = documents([text(words)], tokenizer or Letters(), context)
    return [list(window) for window in found.windows]


def test_windows_begin_with_the_last_token_of_the_one_before() -> None:
    a, b, c, d, e = map(ord, "abcde")
    assert windows("abcde", 3) == [[1, a, b], [b, c, d], [d, e]]
    assert windows("abcd", 3) == [[1, a, b], [b, c, d]]
    assert windows("abcde", 8) == [[1, a, b, c, d, e]]
    assert windows("a", 8) == [[1, a]]
    assert windows("ab", 8, Letters(bos_token_id=7)) == [[7, a, b]]


@given(st.text("abcdé", min_size=1, max_size=40), st.integers(2, 9))
def test_every_token_is_predicted_once_and_all_bytes_count(words: str, context: int) -> None:
    [found] = documents([text(words)], Letters(), context)
    predicted = [token for window in found.windows for token in window[1:]]
    assert predicted == [ord(letter) for letter in words]
    assert found.bytes == len(words.encode())
    assert all(2 <= len(window) <= context for window in found.windows)


def test_without_a_start_token_the_first_token_and_its_bytes_do_not_count() -> None:
    bare = Letters(eos_token_id=None)
    [found] = documents([text("éab")], bare, 8)
    assert [list(window) for window in found.windows] == [[*map(ord, "éab")]]
    assert found.bytes == 2
    with pytest.raises(DataError, match="text 't' is one token"):
        documents([text("a")], bare, 8)
    with pytest.raises(DataError, match="neither a start nor an end token"):
        documents([text("ab")], Letters(eos_token_id=None, is_fast=False), 8)


def test_a_text_that_the_tokenizer_does_not_know_is_named() -> None:
    with pytest.raises(DataError, match="item 't': the tokenizer does not know 50% of it"):
        documents([text("ab")], Letters(unk_token_id=ord("b")), 8)


def split(*documents: list[int]) -> list[Windows]:
    """Documents with one window each, of these tokens."""
    return [Windows(str(i), (np.asarray(ids),), 1) for i, ids in enumerate(documents)]


def test_windows_come_from_every_domain_in_turn_up_to_a_number_of_tokens() -> None:
    """The third window is cut to the token that is left of six."""
    domains = [split([1, 2], [3, 4]), split([5, 6, 7])]
    assert [w.tolist() for w in in_turn(domains, 6)] == [[1, 2], [5, 6, 7], [3]]
    assert [w.tolist() for w in in_turn(domains, 99)] == [[1, 2], [5, 6, 7], [3, 4]]
    assert in_turn([], 6) == in_turn(domains, 0) == []
