"""Patterns of strangers are matched in linear time, and mean what `re` says where both have them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.runs.system.patterns import Matcher

#: Patterns of one character or of one position.
_LEAVES = st.sampled_from(
    ["a", "b", ".", "é", r"\w", r"\d", r"\s", r"\b", r"\A", "[ab]", "[^a]", r"[\w-]", "(?i:A)"]
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = ["*", "+", "?", "*?", "+?", "{2}", "{1,3}"]
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})"),
        st.tuples(inner, st.sampled_from(repeats)).map(lambda both: f"(?:{both[0]}){both[1]}"),
        inner.map(lambda text: f"({text})"),
    )


@given(
    st.recursive(_LEAVES, _larger, max_leaves=6),
    st.booleans(),
    st.lists(st.text("abcAS1 \né", max_size=6), min_size=1, max_size=4),
)
def test_a_pattern_means_what_re_says(pattern: str, dot_all: bool, texts: list[str]) -> None:
    """The oracle is the engine of Python, with classes of ASCII."""
    expected = re.compile(pattern, re.ASCII | (re.DOTALL if dot_all else 0))
    matcher = Matcher(pattern, dot_all)
    for text in texts:
        assert matcher.fullmatch(text) == bool(expected.fullmatch(text))
        assert matcher.search(text) == bool(expected.search(text))


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|aa)+b", "((a*)*)*b", r"(\w+\s?)*!", "(((\\w|\\.|[a-z])+)+)+[XY]"]
)
def test_a_pattern_of_exponential_time_is_answered(pattern: str) -> None:
    """Of 20,000 letters, where `re` takes 2¹⁹⁹⁹⁹ steps: the test ends because the time is linear."""
    assert not Matcher(pattern).fullmatch("a" * 20_000)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", r"missing \)"),
        ("(?<=a)b", r"\(\?<="),
        ("(?!a)b", r"\(\?!"),
        (r"(a)\1", r"\\1"),
        ("a{1001}", "repetition size"),
        ("a" * 4097, "more than 4,096 characters"),
        ("((a{99}){99}){99}", "repetition size"),
        ("\ud800", "surrogates"),
    ],
)
def test_what_cannot_be_matched_is_an_error_in_words(pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Matcher(pattern)


def test_half_a_surrogate_in_a_reply_matches_as_a_letter_that_nobody_knows() -> None:
    """Tokenizers can make such texts; RE2 reads UTF-8."""
    assert Matcher("a.b").fullmatch("a\ud800b")
