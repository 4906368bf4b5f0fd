"""Checks of the form of a reply: patterns and formats, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from agent_forge.evaluation.verifiers.exact import Exact
from agent_forge.evaluation.verifiers.form import FormVerifier, Parses, Pattern, check_patterns
from agent_forge.runs.errors import ConfigError


def score(check: object, reply: str) -> float:
    return FormVerifier().verify(check, reply, {"id": "x"}).score  # pyright: ignore


@pytest.mark.parametrize(
    ("pattern", "search", "reply", "wanted"),
    [
        (r"\d+", False, " 12 \n", 1.0),
        (r"\d+", False, "12 apples", 0.0),
        (r"\d+", True, "12 apples", 1.0),
        (r"a.c", False, "a\nc", 1.0),
        (r"x", False, "", 0.0),
    ],
)
def test_a_pattern_is_of_the_whole_reply_or_of_a_part(
    pattern: str, search: bool, reply: str, wanted: float
) -> None:
    assert score(Pattern(kind="pattern", pattern=pattern, search=search), reply) == wanted


@pytest.mark.parametrize(
    ("format_", "keys", "reply", "wanted"),
    [
        ("json", (), ' {"a": 1}', 1.0),
        ("json", ("a",), '{"a": 1, "b": 2}', 1.0),
        ("json", ("c",), '{"a": 1}', 0.0),
        ("json", ("a",), "[1]", 0.0),
        ("json", (), '{"a": 1', 0.0),
        ("json", (), '```json\n{"a": 1}\n```', 1.0),
        ("json", (), "", 0.0),
        ("csv", ("a",), "a,b\n1,2", 1.0),
        ("csv", ("c",), "a,b\n1,2", 0.0),
        ("csv", (), "a,b\n1,2,3", 0.0),
        ("csv", (), "no fields", 0.0),
        ("toml", ("a",), "a = 1", 1.0),
        ("toml", (), "a = ", 0.0),
    ],
)
def test_a_reply_parses_and_has_its_keys(
    format_: str, keys: tuple[str, ...], reply: str, wanted: float
) -> None:
    check = Parses.model_validate({"kind": "parses", "format": format_, "keys": keys})
    assert score(check, reply) == wanted


def test_checks_of_answers_are_taken_too() -> None:
    check = Exact(kind="exact", answer="yes")
    assert [score(check, reply) for reply in (" yes", "no")] == [1.0, 0.0]


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(ValidationError, match="no regular expression"):
        Pattern(kind="pattern", pattern="(")


def test_a_pattern_that_backtracks_for_ever_is_answered() -> None:
    """`re` needs 2³⁰ steps here, and holds the interpreter's lock meanwhile."""
    assert score(Pattern(kind="pattern", pattern="(a+)+b"), "a" * 30) == 0.0
    assert score(Pattern(kind="pattern", pattern="(a+)+b"), "a" * 30 + "b") == 1.0


def test_a_pattern_that_looks_around_is_refused_at_submission_and_readable_in_a_log() -> None:
    """RE2 has no such groups: nothing is measured by a pattern that cannot be matched."""
    check = Pattern(kind="pattern", pattern="(?!a).*")
    with pytest.raises(ConfigError, match=r"RE2 cannot match it"):
        check_patterns([None, check])
    assert score(check, "b") == 0.0


def test_a_pattern_that_is_too_large_is_refused_at_submission_and_readable_in_a_log() -> None:
    check = Pattern(kind="pattern", pattern="(a{999}){99}")
    with pytest.raises(ConfigError, match=r"'\(a\{999\}\)\{99\}': RE2 cannot match it"):
        check_patterns([None, check])
    assert score(check, "a") == 0.0
