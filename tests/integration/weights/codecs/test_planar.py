"""The nearest of many points of the plane."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.weights import randomness
from agent_forge.weights.codecs.search import planar

PLACES = st.tuples(st.integers(-6, 6), st.integers(-6, 6))


@settings(deadline=None)
@given(st.lists(PLACES, min_size=1, max_size=60), st.lists(PLACES, min_size=1, max_size=8))
def test_it_is_the_first_of_the_nearest(points: list, queries: list) -> None:
    """On whole numbers, where ties and points on the edges of cells are many."""
    a, b = np.array(points, dtype=float), np.array(queries, dtype=float) * 1.5
    apart = ((b[:, None] - a[None]) ** 2).sum(2)
    found, errors = planar.nearest(a, b)
    assert found.tolist() == apart.argmin(1).tolist()
    assert errors.tolist() == apart.min(1).tolist()


def test_it_is_the_nearest_of_crowded_and_lonely_points() -> None:
    """Also for queries far outside of all points."""
    points = randomness.gaussian(2000, "points").reshape(-1, 2)
    points[:500] *= 0.01
    queries = randomness.gaussian(3000, "queries").reshape(-1, 2) * 3
    apart = ((queries[:, None] - points[None]) ** 2).sum(2)
    found, _ = planar.nearest(points, queries)
    assert np.array_equal(found, apart.argmin(1))
