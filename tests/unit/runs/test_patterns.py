"""Patterns of strangers mean what `re` says, and end after a number of steps."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.system import patterns
from runs.system.patterns import Matcher, Steps, TooManyStepsError

#: Patterns of one character or of one position.
_LEAVES = st.sampled_from(
    [
        *("a", "b", ".", "^", "$", "\n", "é", r"\w", r"\d", r"\s", r"\b", r"\B", r"\A", r"\Z"),
        *("[ab]", "[^a]", "[a-c1]", r"[\w-]", "(?i:A)", "(?i:ſ)", "(?<=a)", "(?<![ab]c)"),
    ]
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = ["*", "+", "?", "*?", "+?", "{2}", "{1,3}", "{,2}?"]
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})"),
        st.tuples(inner, st.sampled_from(repeats)).map(lambda both: f"(?:{both[0]}){both[1]}"),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"(?={text})"),
        inner.map(lambda text: f"(?!{text})"),
    )


@given(
    st.recursive(_LEAVES, _larger, max_leaves=6),
    st.sampled_from([0, re.DOTALL, re.MULTILINE, re.IGNORECASE, re.ASCII]),
    st.lists(st.text("abcAS1 \né", max_size=6), min_size=1, max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_a_pattern_means_what_re_says(pattern: str, flags: int, texts: list[str]) -> None:
    """The oracle is the engine of Python, on texts that it can match in time."""
    expected, matcher = re.compile(pattern, flags), Matcher(pattern, flags)
    for text in texts:
        assert matcher.fullmatch(text) == bool(expected.fullmatch(text))
        assert matcher.search(text) == bool(expected.search(text))


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        (r"(a|b)\1", "aa", True),
        (r"(a|b)\1", "ab", False),
        (r"(?i)(a)\1", "aA", True),
        (r"(a)?(?(1)b|c)", "ab", True),
        (r"(a)?(?(1)b|c)", "c", True),
        (r"(a)?(?(1)b|c)", "b", False),
        (r"(?>a+)ab", "aaab", False),
        (r"a++b", "aab", True),
        (r"a++ab", "aaab", False),
        (r"(?P<word>\w+) (?P=word)", "so so", True),
        (r"(?=(a+))\1b", "aab", True),
    ],
)
def test_groups_that_count_later_are_matched(pattern: str, text: str, fits: bool) -> None:
    """Derived by hand; `re` says the same."""
    assert Matcher(pattern).fullmatch(text) == fits == bool(re.fullmatch(pattern, text))


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|aa)+b", "((a*)*)*b", r"(\w+\s?)*!", "(((\\w|\\.|[a-z])+)+)+[XY]"]
)
def test_a_pattern_of_exponential_time_is_answered_in_few_steps(pattern: str) -> None:
    """At most about (instructions × letters) steps, where `re` takes 2⁵⁰."""
    steps = Steps()
    assert not Matcher(pattern).fullmatch("a" * 50, steps=steps)
    assert patterns.MOST_STEPS - steps.left < 60 * 50


def test_back_references_without_end_are_ended_by_the_count_of_steps() -> None:
    """With back-references a state is more than a place, so only the count ends the match."""
    pattern = Matcher(r"(a*)*(a*)*(a*)*\1\2\3b")
    steps = Steps(50_000)
    with pytest.raises(TooManyStepsError):
        pattern.fullmatch("a" * 60, steps=steps)
    with pytest.raises(TooManyStepsError):  # nothing is left for another text
        pattern.fullmatch("a", steps=steps)


def test_a_pattern_begins_where_it_is_told_and_sees_what_is_before() -> None:
    matcher = Matcher("^b+|(?<=a)c+")
    assert [matcher.fullmatch(text, 1) for text in ("abb", "acc", "bcc")] == [False, True, False]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "missing \\)"),
        ("(?<=a+)b", "fixed-width"),
        ("a" * 4097, "more than 4,096 characters"),
        ("((a{99}){99}){99}", "more than 20,000 characters and choices"),
        ("(" * 2000 + ")" * 2000, "recursion"),
    ],
)
def test_what_is_no_pattern_or_too_large_is_an_error_in_words(pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Matcher(pattern)


def test_an_empty_loop_of_any_length_takes_no_time() -> None:
    """2³¹ times nothing is nothing."""
    assert Matcher("(?:){2147483648}a|b").fullmatch("a")
