"""Dominance, crowding, hypervolume: by hand, and against pymoo."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.search import pareto
from agent_forge.search.pareto import Draws

POINTS = st.integers(2, 4).flatmap(
    lambda n: st.lists(st.tuples(*[st.integers(0, 6)] * n), min_size=1, max_size=24)
)


@pytest.fixture(scope="module")
def pymoo():
    """Its modules; it warns while it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pymoo.indicators.hv import HV
        from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance
        from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting
    return NonDominatedSorting, calc_crowding_distance, HV


def test_by_hand() -> None:
    points = [(1.0, 3.0), (2.0, 2.0), (3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]
    assert pareto.fronts(points) == [[0, 1, 2], [4], [3]]
    assert pareto.crowding(points[:3]) == [math.inf, 2.0, math.inf]
    assert pareto.hypervolume(points, (0.0, 0.0)) == 6.0
    assert pareto.hypervolume([(2.0, 2.0, 2.0), (1.0, 3.0, 1.0)], (0.0, 0.0, 0.0)) == 9.0
    assert pareto.hypervolume([(0.0, 5.0)], (0.0, 0.0)) == 0.0
    assert pareto.crowding([]) == []


@settings(max_examples=80, deadline=None)
@given(points=POINTS)
def test_fronts_are_pymoos(points, pymoo) -> None:
    sorting, _, _ = pymoo
    expected = sorting().do(-np.array(points, float))
    assert [sorted(f) for f in pareto.fronts(points)] == [sorted(map(int, f)) for f in expected]


@settings(max_examples=60, deadline=None)
@given(points=POINTS)
def test_hypervolume_is_pymoos(points, pymoo) -> None:
    _, _, volume = pymoo
    n = len(points[0])
    expected = volume(ref_point=np.zeros(n))(-np.array(points, float))
    assert pareto.hypervolume(points, (0.0,) * n) == pytest.approx(float(expected))


@settings(max_examples=40, deadline=None)
@given(
    points=st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)),
        min_size=3,
        max_size=20,
        unique_by=(lambda p: p[0], lambda p: p[1]),
    )
)
def test_crowding_is_pymoos(points, pymoo) -> None:
    """Of points of which no two are level, where every order is the same; pymoo takes the mean."""
    _, crowding, _ = pymoo
    expected = np.asarray(crowding(-np.array(points, float))) * 2
    found = pareto.crowding(points)
    finite = np.isfinite(expected) & np.isfinite(found)
    assert (np.isfinite(expected) == np.isfinite(found)).all()
    assert np.array(found)[finite] == pytest.approx(expected[finite])


def test_simulated_binary_crossover_keeps_the_middle_and_its_spread() -> None:
    """Deb & Agrawal: children lie around their parents; E[β] of η = 15 is near 1."""
    a, b = [0.4] * 2000, [0.6] * 2000
    child = np.array(pareto.binary(a, b, Draws("sbx", 1, count=8000)))
    if (child == 0.4).all():  # one child in ten is not crossed
        child = np.array(pareto.binary(a, b, Draws("sbx", 2, count=8000)))
    crossed = child[child != 0.4]
    assert 0.45 < len(crossed) / len(child) < 0.55
    assert abs(crossed.mean() - 0.5) < 0.01
    assert 0.05 < np.abs(crossed - 0.5).mean() < 0.12


def test_polynomial_mutation_moves_one_gene_on_the_average() -> None:
    moved, steps = [], []
    for i in range(400):
        x = [0.5] * 20
        child = pareto.polynomial(x, Draws("pm", i, count=64))
        moved.append(sum(v != 0.5 for v in child))
        steps += [v - 0.5 for v in child if v != 0.5]
    assert 0.85 < np.mean(moved) < 1.15
    assert abs(np.mean(steps)) < 0.01
    assert 0.01 < np.std(steps) < 0.1


def test_crossover_of_cells_and_of_lines() -> None:
    a, b = [0.0] * 40, [1.0] * 40
    cells = pareto.layer_wise(a, b, [4] * 10, Draws("cells", 1, count=64))
    assert all(len(set(cells[i : i + 4])) == 1 for i in range(0, 40, 4))
    assert set(cells) == {0.0, 1.0}
    line = pareto.blended(a, b, Draws("line", 1))
    assert len(set(line)) == 1
    assert 0 < line[0] < 1
    assert all(0 <= v <= 1 for v in pareto.gaussian([0.0, 1.0] * 8, 9.0, Draws("edge", 1)))
