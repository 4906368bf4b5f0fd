"""The cross-entropy method: it finds an optimum that is known, and follows from what was recorded."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.weights.training.cross_entropy import Normal, drawn, followed

Point = tuple[float, ...]


def searched(loss: Callable[[Point], float], n: int, rounds: int, seed: int = 0) -> Normal:
    """The distribution after some rounds of 40 points, of which 10 are followed."""
    normal = Normal((0.0,) * n, (1.0,) * n)
    for number in range(rounds):
        points = drawn(normal, 40, seed, "test", number)
        normal = followed(points, [loss(point) for point in points], 10, 1e-3)
    return normal


@pytest.mark.parametrize("n", [1, 2, 5])
def test_it_finds_the_optimum_of_a_quadratic(n: int) -> None:
    """A bowl ten times as steep in one direction, with its bottom at 0.7, 0.6, …."""
    bottom = [0.7 - 0.1 * i for i in range(n)]

    def loss(x: Point) -> float:
        return sum((10 if i == 0 else 1) * (a - b) ** 2 for i, (a, b) in enumerate(zip(x, bottom)))  # noqa: B905

    found = searched(loss, n, 25)
    assert found.mean == pytest.approx(bottom, abs=0.02)


def test_it_is_as_good_as_cma_es_on_a_few_numbers() -> None:
    """The package cmaes is the oracle: both end within a hundredth of the optimum after 800 points."""
    from cmaes import CMA

    def loss(x: Point) -> float:
        return (x[0] - 0.4) ** 2 + 3 * (x[1] + 0.2) ** 2 + 0.5 * (x[0] + x[1]) ** 2

    # The gradient is zero where 3 a + b = 0.8 and a + 7 b = −1.2, in halves: solved by numpy.
    best = np.linalg.solve([[2 + 1, 1], [1, 6 + 1]], [0.8, -1.2])
    cma = CMA(mean=np.zeros(2), sigma=1.0, seed=3, population_size=40)
    for _ in range(20):
        asked = [cma.ask() for _ in range(40)]
        cma.tell([(x, loss(tuple(x))) for x in asked])
    assert cma.mean == pytest.approx(best, abs=0.01)
    assert searched(loss, 2, 20).mean == pytest.approx(best, abs=0.01)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(
        st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.integers(0, 5)), min_size=1, max_size=12
    ),
    data=st.data(),
)
def test_the_elite_is_followed(values: list[tuple[float, float, int]], data: st.DataObject) -> None:
    """Mean and deviation by numpy, over the best points; the earlier of equals counts."""
    elite = data.draw(st.integers(1, len(values)))
    points, losses = [v[:2] for v in values], [float(v[2]) for v in values]
    found = followed(points, losses, elite, 0.01)
    order = np.argsort(np.array(losses), kind="stable")[:elite]
    best = np.array(points)[order]
    assert found.mean == pytest.approx(best.mean(0), abs=1e-6)
    assert found.deviation == pytest.approx(np.maximum(best.std(0), 0.01), abs=1e-6)


def test_points_depend_on_their_key_alone() -> None:
    normal = Normal((0.25, -1.0), (0.1, 2.0))
    first = drawn(normal, 5, 1, "a")
    assert first == drawn(normal, 5, 1, "a")
    assert first[0] == normal.mean
    assert first[1:] != drawn(normal, 5, 2, "a")[1:]
    many = np.array(drawn(normal, 4001, 1, "many")[1:])
    assert many.mean(0) == pytest.approx(normal.mean, abs=4 * 2.0 / math.sqrt(4000))
    assert many.std(0) == pytest.approx(normal.deviation, rel=0.06)


def test_an_elite_that_there_is_not_is_refused() -> None:
    for elite in (0, 3):
        with pytest.raises(ValueError, match="cannot be taken"):
            followed([(0.0,), (1.0,)], [1.0, 2.0], elite, 0.1)
