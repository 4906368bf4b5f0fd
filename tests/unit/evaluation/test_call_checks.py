"""Calls in replies, checked by the rules of the Berkeley Function Calling Leaderboard.

Each rule has cases that are right and cases that are wrong. `bfcl_eval` 2026.3.23 gives the same
verdicts (`ast_checker`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from agent_forge.evaluation.verifiers import calls
from agent_forge.evaluation.verifiers.calls import Calls
from agent_forge.evaluation.verifiers.verifier import Verifier


def reply(*members: tuple[str, dict[str, Any]]) -> str:
    """Return a reply with these calls."""
    texts = (json.dumps({"name": name, "arguments": arguments}) for name, arguments in members)
    return "\n".join(f"<tool_call>{text}</tool_call>" for text in texts)


def check(*allowed: dict[str, Any]) -> Calls:
    return Calls.model_validate({"kind": "calls", "allowed": allowed})


def member(name: str, arguments: dict[str, list[Any]], **schema: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, **schema}


def is_right(value: Any, type_: str, *allowed: Any) -> bool:
    """Return True if a call with this value of an argument of the type is right."""
    rule = check(member("f", {"a": [*allowed]}, types={"a": type_}))
    return calls.rate(rule, reply(("f", {"a": value}))).score == 1


@pytest.mark.parametrize(
    ("type_", "allowed", "right", "wrong"),
    [
        ("integer", [5], [5], [6, 5.0, "5", True, None, [5]]),
        ("integer", [1], [1], [True]),
        ("float", [5.0], [5, 5.0], [5.5, "5.0", True, 10**400]),
        ("float", [5], [5, 5.0], [6]),
        ("boolean", [True], [True], [False, 1, "true"]),
        ("string", ["New York, NY"], ["new york ny", "NEW-YORK_N*^/,Y."], ["New York; NY"]),
        ("string", ["it's"], ["IT'S", 'it"s'], ["its"]),
        ("string", ["a", "b"], ["b"], ["c", ["a"]]),
        ("any", ["x"], ["X"], [1]),
        ("array of integer", [[1, 2]], [[1, 2]], [[2, 1], [1], "1, 2", [1.0, 2.0], ["1", "2"]]),
        ("array of float", [[1.5, 2.0]], [[1.5, 2.0]], [[1.5, 2]]),
        ("array of string", [["Red", "blue"], ["x"]], [["red", "BLUE"], ["X"]], [["blue", "Red"], []]),
        ("tuple of float", [[0.5, 1.5]], [[0.5, 1.5]], [[1.5, 0.5], 0.5]),
        ("dict", [{"a": [1, 2], "b": ["X", ""]}], [{"a": 2}, {"a": 1, "b": "x"}], [{}, {"a": 3}]),
        ("dict", [{"a": [1]}], [{"a": 1}], [{"a": 1, "z": 1}, [1], {"a": [1]}]),
        ("array of dict", [[{"a": [1]}, {"b": [2]}]], [[{"a": 1}, {"b": 2}]], [[{"b": 2}, {"a": 1}]]),
        # A variable's name is allowed where a list belongs; it has to be equal.
        ("array of integer", ["data"], ["data"], ["Data", [1]]),
    ],
)  # fmt: skip
def test_values_are_compared_by_their_type(
    type_: str, allowed: list[Any], right: list[Any], wrong: list[Any]
) -> None:
    """An integer counts as a float, texts without case and punctuation, lists in their order."""
    assert [value for value in right if not is_right(value, type_, *allowed)] == []
    assert [value for value in wrong if is_right(value, type_, *allowed)] == []


def test_types_are_those_of_the_values_without_a_schema() -> None:
    """Users who write checks by hand have no schema at hand."""
    rule = check(member("f", {"a": [[{"x": [1]}]], "b": ["", 2.0], "c": ["A b"], "d": [""]}))
    assert calls.rate(rule, reply(("f", {"a": [{"x": 1}], "b": 2, "c": "ab"}))).score == 1
    assert calls.rate(rule, reply(("f", {"a": [{"x": 2}], "c": "ab"}))).score == 0
    assert calls.rate(rule, reply(("f", {"a": [{"x": 1}], "c": "ab", "d": 1}))).score == 0


RULE = check(
    member(
        "f",
        {"a": [1], "b": ["x", ""], "c": [2], "d": [3, ""]},
        types=dict.fromkeys("acd", "integer") | {"b": "string"},
        required=("a", "d"),
    )
)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"a": 1, "c": 2, "d": 3}, ""),
        ({"a": 1, "b": "X", "c": 2, "d": 3}, ""),
        ({"a": 1, "b": "y", "c": 2, "d": 3}, "the argument 'b' of f is 'y'"),
        ({"c": 2, "d": 3}, "the argument 'a' of f is missing"),
        ({"a": 1, "d": 3}, "the argument 'c' of f is missing"),
        ({"a": 1, "c": 2}, "the argument 'd' of f is missing"),
        ({"a": 1, "c": 2, "d": 3, "e": 1}, "the argument 'e' of f is unexpected"),
    ],
)
def test_arguments_are_given_unless_they_are_optional(arguments: dict[str, Any], why: str) -> None:
    """An empty text among the allowed values makes an argument optional, unless it is required."""
    rating = calls.rate(RULE, reply(("f", arguments)))
    assert (rating.score, rating.why) == (not why, why)


def test_an_argument_that_the_schema_lacks_is_unexpected() -> None:
    """So it is in the leaderboard, even if it has allowed values."""
    rule = check(member("f", {"a": [1], "b": [1, ""]}, types={"a": "integer"}))
    assert calls.rate(rule, reply(("f", {"a": 1}))).score == 1
    assert "unexpected" in calls.rate(rule, reply(("f", {"a": 1, "b": 1}))).why


def test_the_name_is_exact() -> None:
    """Names are no texts: case and punctuation count."""
    rule = check(member("math_sum", {}))
    assert calls.rate(rule, reply(("math_sum", {}))).score == 1
    for name in ("math.sum", "Math_sum", "mathsum"):
        assert "function" in calls.rate(rule, reply((name, {}))).why


def test_several_calls_may_come_in_any_order() -> None:
    """Each allowed call takes a call of the reply that no other has taken."""
    rule = check(member("f", {"a": [1, 2]}), member("f", {"a": [2]}), member("g", {}))
    first, second, third = ("f", {"a": 1}), ("f", {"a": 2}), ("g", {})
    for members in ([first, second, third], [third, second, first]):
        expected = members[0] == first  # as in the leaderboard, which takes the first that fits
        assert calls.rate(rule, reply(*members)).score == expected
    assert calls.rate(rule, reply(second, second, third)).score == 1
    assert calls.rate(rule, reply(first, third)).why == "the number of calls is 2, not 3"
    assert calls.rate(rule, reply(first, first, third)).score == 0


def test_no_call_is_right_where_none_is_allowed() -> None:
    """A malformed call is none, as in the leaderboard."""
    rule = check()
    assert calls.rate(rule, "No function fits.").score == 1
    assert calls.rate(rule, "<tool_call>{broken}</tool_call>").score == 1
    assert calls.rate(rule, reply(("f", {}))).score == 0
    malformed = calls.rate(check(member("f", {})), "<tool_call>{broken}</tool_call>")
    assert malformed.why == "the number of calls is 0, not 1"


def test_a_verifier_knows_the_check() -> None:
    """Items name it by its kind."""
    assert Verifier().verify(RULE, reply(("f", {"a": 1, "c": 2, "d": 3})), {"id": "x"}).score == 1


@pytest.mark.parametrize("type_", ["String", "list of integer", "array of", "dict of string"])
def test_unknown_types_are_refused(type_: str) -> None:
    """Types of Java and JavaScript have other rules."""
    with pytest.raises(ValidationError, match="pattern"):
        check(member("f", {"a": [1]}, types={"a": type_}))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1e999"])
def test_a_number_that_is_none_makes_a_call_malformed(number: str) -> None:
    """JSON's parser takes them, and no digest does: one reply must not end a run."""
    text = f'<tool_call>{{"name": "f", "arguments": {{"x": {number}}}}}</tool_call>'
    assert calls.calls_in(text) is None
    assert not calls.is_right(text, "no")


def test_calls_that_are_begun_without_end_are_found_out_at_once() -> None:
    """A model that repeats itself writes thousands of them: no search from each to the end."""
    assert calls.calls_in("<tool_call>" * 5_000) is None


def test_the_same_calls_are_right_in_any_order_and_a_truth_is_no_number() -> None:
    right = reply(("f", {"x": 1}), ("g", {"y": [2, {"z": 3.0}]}))
    assert calls.is_right(reply(("g", {"y": [2.0, {"z": 3}]}), ("f", {"x": 1.0})), right)
    assert not calls.is_right(reply(("g", {"y": [2, {"z": 3}]}), ("f", {"x": True})), right)
    assert calls.is_right("no", "none fits")
    assert not calls.is_right("no", right)


@pytest.mark.parametrize("value", [{"x": 1}, [{"city": "Oslo"}]])
def test_an_object_that_lists_no_values_is_no_check(value: Any) -> None:
    """Else a right reply would be wrong: each key of an object lists its right values."""
    with pytest.raises(ValidationError, match="an object lists the right values of each key"):
        check(member("f", {"p": [value]}))
    assert check(member("f", {"p": [{"city": ["Oslo"]}]}))
