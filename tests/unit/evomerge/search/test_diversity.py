"""How far candidates are apart, and when the search stops."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from agent_forge.evomerge.search import diversity


def sketch(*values: float) -> str:
    """A sketch by hand, in the log's encoding."""
    return base64.b64encode(np.asarray(values, "<f4").tobytes()).decode()


A, B, C = sketch(0, 0), sketch(3, 4), sketch(6, 8)
NAN = sketch(float("nan"), 0)


def test_distances_are_euclidean():
    """3-4-5: the distances of the three are 5, 10 and 5, on the mean 20/3."""
    assert diversity.distance(A, B) == 5.0
    assert diversity.mean_distance([A, B, C]) == pytest.approx(20 / 3)
    assert diversity.mean_distance([A]) == 0.0


def test_diversity_is_relative_to_the_sources():
    """Population 5 apart, sources 10 apart: ½. Sources that are all one have no unit: 0."""
    assert diversity.diversity([A, B], [A, C]) == 0.5
    assert diversity.diversity([A, A, A], [A, C]) == 0.0
    assert diversity.diversity([A, B], [A, A]) == 0.0


def test_candidates_that_are_not_finite_do_not_count():
    """One NaN would make every later comparison false and stop reseeding for ever."""
    assert diversity.diversity([A, NAN, B], [A, C]) == 0.5
    assert diversity.own_distance(1, [A, NAN, B], [A, C]) == 0.0


def test_own_distance_is_a_candidate_s_mean_distance_to_the_others():
    """A: (5 + 10)/2 = 7.5 of 10; B: 5 of 10. Alone: 0."""
    assert diversity.own_distance(0, [A, B, C], [A, C]) == 0.75
    assert diversity.own_distance(1, [A, B, C], [A, C]) == 0.5
    assert diversity.own_distance(0, [A], [A, C]) == 0.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.3, "healthy"), (0.29, "low"), (0.2, "low"), (0.19, "critical"), (0.0, "critical")],
)
def test_levels_begin_at_their_thresholds(value: float, expected: str):
    """0.3 and above healthy, 0.2–0.3 warns, below reseeds."""
    assert diversity.level(value, 0.3, 0.2) == expected


@pytest.mark.parametrize(
    ("scores", "patience", "expected"),
    [
        ([1.0] * 6, 5, True),  # five generations without improvement
        ([1.0] * 5, 5, False),  # only four
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.002], 5, False),  # 0.2 % over five
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0009], 5, True),  # 0.09 %
        ([1.0, 2.0, 2.0, 2.0], 2, True),  # only the last two count
        ([1.0, 2.0, 2.0], 2, False),  # both of them do
        ([-1.0, -1.0, -0.998], 2, False),  # negative scores: 0.2 % of |−1|
        ([None, None, None], 2, True),  # nobody ever had a score
        ([None, None, 1.0], 2, False),  # somebody has one now
        ([1.0] * 100, 0, False),  # switched off
    ],
)
def test_the_plateau_rule(scores: list[float | None], patience: int, expected: bool):
    """Less than 0.1 % relative improvement over `patience` generations."""
    assert diversity.converged(scores, 0.001, patience) is expected
