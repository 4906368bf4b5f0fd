"""Mixtures: the hull by hand, the ladder against all assignments, harms."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.phases.compression import recipes
from agent_forge.phases.compression.recipes import MatrixSettings, Option

OPTIONS = st.lists(
    st.builds(
        Option, st.sampled_from("abcdefgh"), st.integers(1, 60), st.integers(0, 40).map(lambda n: n / 8)
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda option: option.setting,
)


def test_the_hull_leaves_out_what_is_beaten_and_what_lies_above_a_line() -> None:
    """From (10, 8) to (20, 2) a byte saves 0.6; (15, 6) lies above that line, (30, 2) is beaten."""
    options = [
        Option("middle", 15, 6.0),
        Option("large", 30, 2.0),
        Option("small", 10, 8.0),
        Option("good", 20, 2.0),
        Option("best", 40, 1.0),
    ]
    assert [o.setting for o in recipes.hull(options)] == ["small", "good", "best"]


def test_a_byte_is_given_first_to_the_matrix_that_gains_most_by_it() -> None:
    """The second matrix gains 1 a byte, the first 0.5, then the second 0.1."""
    first = [Option("coarse", 10, 5.0), Option("fine", 20, 0.0)]
    second = [Option("coarse", 10, 10.0), Option("fine", 20, 0.0)]
    steps = recipes.ladder([first, second])
    assert [m.settings for m in steps] == [("coarse", "coarse"), ("coarse", "fine"), ("fine", "fine")]
    assert [(m.bytes, m.harm) for m in steps] == [(20, 15.0), (30, 5.0), (40, 0.0)]


@given(st.lists(OPTIONS, min_size=1, max_size=3))
def test_no_assignment_of_as_many_bytes_has_less_harm(matrices: list[list[Option]]) -> None:
    """Against all assignments: a mixture of the ladder is the best of its size."""
    every = [
        (sum(o.bytes for o in chosen), sum(o.harm for o in chosen)) for chosen in product(*matrices)
    ]
    for mixture in recipes.ladder(matrices):
        within = [harm for bytes_, harm in every if bytes_ <= mixture.bytes]
        assert mixture.harm == pytest.approx(min(within))


@given(st.lists(OPTIONS, min_size=1, max_size=3), st.integers(0, 200))
def test_the_mixture_within_a_budget_is_the_last_that_fits(
    matrices: list[list[Option]], most: int
) -> None:
    steps = recipes.ladder(matrices)
    assert [m.bytes for m in steps] == sorted(m.bytes for m in steps)
    found = recipes.within(steps, most)
    fitting = [m for m in steps if m.bytes <= most]
    assert found == (fitting[-1] if fitting else None)
    harm = most / 10
    assert recipes.below(steps, harm) == next((m for m in steps if m.harm <= harm), None)


def test_harm_goes_with_the_error_and_a_fall_counts_as_the_least_rise() -> None:
    errors = {"coarse": 0.2, "fine": 0.05, "exact": 0.0}
    assert recipes.harms(errors, "coarse", 0.4, 0.01) == {
        "coarse": 0.4,
        "fine": pytest.approx(0.1),
        "exact": 0.0,
    }
    assert recipes.harms(errors, "coarse", -0.3, 0.01)["coarse"] == pytest.approx(0.01)
    assert recipes.harms({"exact": 0.0}, "exact", 0.3, 0.01) == {"exact": 0.0}
    assert MatrixSettings(("a",), 1, 0.0) in recipes.ladder([[Option("a", 1, 0.0)]])
