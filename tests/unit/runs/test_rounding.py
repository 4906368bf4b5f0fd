"""Values that are equal but for rounding, and values that are not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.runs.event_types import Figure
from agent_forge.runs.system.rounding import alike

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_a_value_is_like_itself(value: object) -> None:
    assert alike(value, value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_next_number_is_alike(value: float) -> None:
    assert alike([{"a": value}], [{"a": math.nextafter(value, 0.0)}])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1.0, 1.00000001),
        (1e-9, 2e-9),
        (0.0, 1e-11),
        (1, 2),
        (1, True),
        (1, 1.0),
        (1.0, None),
        (1.0, float("nan")),
        (float("inf"), -float("inf")),
        ("a", "b"),
        ("ab", ["a", "b"]),
        ([1.0], [1.0, 1.0]),
        ({"a": 1.0}, {"b": 1.0}),
        ({"a": 1.0}, {"a": 1.0, "b": None}),
        (Figure(value=1.0), Figure(value=1.1)),
    ],
)
def test_what_differs_by_more_is_not(a: object, b: object) -> None:
    assert not alike(a, b)
    assert not alike(b, a)
    assert not alike([a], [b])


def test_models_are_compared_by_their_content() -> None:
    assert alike({"r": Figure(value=1.0, low=0.1)}, {"r": Figure(value=1.0 + 1e-15, low=0.1)})
    assert alike((1.0, 2.0), [1.0, 2.0])
