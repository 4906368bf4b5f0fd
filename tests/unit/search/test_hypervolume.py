"""Hypervolume of larger fronts: by hand, as the plain form has it, and pymoo's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.search import pareto
from agent_forge.search.hypervolume import hypervolume

POINTS = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.tuples(*[st.integers(-2, 6)] * n), min_size=1, max_size=16)
)


def test_by_hand() -> None:
    """Two staircases; a point below the reference, and one that another beats, add nothing."""
    points = [(1.0, 3.0), (2.0, 2.0), (3.0, 1.0), (1.0, 1.0), (-1.0, 9.0)]
    assert hypervolume(points, (0.0, 0.0)) == 6.0
    assert hypervolume([(2.0, 2.0, 2.0), (1.0, 3.0, 1.0)], (0.0, 0.0, 0.0)) == 9.0
    assert hypervolume([(3.0, 1.0), (2.0, 2.0)], (1.0, 1.0)) == 1.0
    assert hypervolume([], (0.0, 0.0)) == 0.0
    assert hypervolume([(4.0,), (2.0,)], (1.0,)) == 3.0


@settings(max_examples=80, deadline=None)
@given(points=POINTS)
def test_it_is_that_of_the_plain_form_and_of_pymoo(points: list[tuple[int, ...]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pymoo.indicators.hv import HV
    n = len(points[0])
    found = hypervolume(points, (0.0,) * n)
    assert found == pytest.approx(pareto.hypervolume(points, (0.0,) * n))
    above = [point for point in points if min(point) > 0]
    expected = HV(ref_point=np.zeros(n))(-np.array(above, float)) if above else 0.0
    assert found == pytest.approx(float(expected or 0.0))
