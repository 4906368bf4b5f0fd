"""K-means: its assignment, its start, its rounds, centres without vectors."""

from __future__ import annotations

import numpy as np
import pytest

from agent_forge.weights import randomness
from agent_forge.weights.codecs.search import kmeans


def vectors(count: int, width: int) -> np.ndarray:
    return randomness.gaussian(count * width, "kmeans").reshape(count, width).astype(np.float32)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_each_vector_gets_its_nearest_centre(count: int) -> None:
    """The lowest index of equals; blocks of 64 centres are compared at a time."""
    some, centres = vectors(300, 3), vectors(200, 3)[:count]
    centres = np.concatenate([centres, centres])
    nearest, errors = kmeans.assign(some, centres)
    apart = ((some[:, None].astype(float) - centres[None]) ** 2).sum(2)
    assert np.array_equal(nearest, apart[:, :count].argmin(1))
    assert errors == pytest.approx(apart.min(1), rel=1e-5)


def test_well_separated_groups_are_found() -> None:
    """Four groups at known places: their weighted means, whatever the order."""
    corners = np.array([[0, 0], [0, 100], [100, 0], [100, 100]], np.float32)
    some = np.repeat(corners, 3, axis=0) + np.tile([[0.0], [3.0], [6.0]], (4, 1)).astype(np.float32)
    weights = np.tile([1.0, 1.0, 2.0], 4)
    centres = kmeans.cluster(some, weights, 4, 20, "groups")
    # (0 + 3 + 2 · 6) / 4 = 3.75 from each corner.
    assert sorted(map(tuple, centres)) == sorted(map(tuple, corners + 3.75))


def test_lloyd_never_makes_it_worse() -> None:
    """The weighted error falls from round to round, to below the start's."""
    some = vectors(2000, 4)
    weights = randomness.uniform(2000, "weights")
    errors = []
    for rounds in (0, 1, 2, 5, 20):
        centres = kmeans.cluster(some, weights, 32, rounds, "rounds").astype(np.float32)
        errors.append(float((weights * kmeans.assign(some, centres)[1]).sum()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.85 * errors[0]


def test_as_many_centres_as_different_vectors_leave_no_error() -> None:
    some = np.repeat(vectors(5, 2), 4, axis=0)
    centres = kmeans.cluster(some, np.ones(20), 16, 10, "few")
    assert len(centres) == 5
    assert kmeans.assign(some, centres.astype(np.float32))[1].max() == 0.0


def test_a_centre_without_vectors_moves_to_the_worst_one() -> None:
    """The vector of the largest weighted error, not the farthest."""
    some = np.array([[0.0], [1.0], [10.0], [14.0]], np.float32)
    weights = np.array([1.0, 1.0, 1.0, 0.1])
    nearest = np.array([0, 0, 0, 0])
    errors = ((some[:, 0] - 2.0) ** 2).astype(float)  # 4, 1, 64 and 144 · 0.1
    centres = np.array([[2.0], [50.0]])
    kmeans._move(some, weights, nearest, errors, centres)
    assert centres[1, 0] == 10.0
    assert centres[0, 0] == pytest.approx((0 + 1 + 10 + 1.4) / 3.1)


def test_weights_of_zero_count_alike() -> None:
    some = vectors(10, 2)
    assert np.array_equal(
        kmeans.cluster(some, np.zeros(10), 3, 5, "zero"),
        kmeans.cluster(some, np.ones(10), 3, 5, "zero"),
    )


def test_the_key_alone_decides_the_start() -> None:
    some = vectors(500, 2)
    one = kmeans.cluster(some, np.ones(500), 8, 0, "a", 1)
    assert np.array_equal(one, kmeans.cluster(some, np.ones(500), 8, 0, "a", 1))
    assert not np.array_equal(one, kmeans.cluster(some, np.ones(500), 8, 0, "a", 2))
    assert all((some == centre.astype(np.float32)).all(1).any() for centre in one)
