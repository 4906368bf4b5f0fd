"""CMA-ES beside the package `cmaes`, generation by generation; bounds, rates, bases."""

from __future__ import annotations

import doctest
from collections.abc import Callable

import numpy as np
import pytest
from cmaes import CMA

from agent_forge.evomerge.search.strategies import covariance_adaptation
from agent_forge.evomerge.search.strategies.covariance_adaptation import CovarianceAdaptation, rates

Function = Callable[[np.ndarray], float]


def sphere(x: np.ndarray) -> float:
    return float(np.square(x - 0.3).sum())


def ellipsoid(x: np.ndarray) -> float:
    """Axes a thousand times longer than others, turned against the coordinates."""
    turned = np.cumsum(x - 0.6)
    return float((np.geomspace(1, 1e6, len(x)) * turned**2).sum())


def rosenbrock(x: np.ndarray) -> float:
    y = 3 * x - 1
    return float((100 * (y[1:] - y[:-1] ** 2) ** 2 + (1 - y[:-1]) ** 2).sum())


def steps(x: np.ndarray) -> float:
    """Many points are equal: the order in which they were drawn decides."""
    return float(np.floor(8 * x).sum())


@pytest.mark.parametrize("function", [sphere, ellipsoid, rosenbrock, steps])
@pytest.mark.parametrize(("n", "size"), [(2, 4), (3, 7), (10, 10), (33, 14)])
def test_every_generation_is_that_of_the_package(function: Function, n: int, size: int) -> None:
    """The same points in, the same bits out: mean, step size, covariance and both paths."""
    start = np.linspace(0.1, 0.9, n)
    ours = CovarianceAdaptation(start, 0.25, size)
    theirs = CMA(start, 0.25, np.array([[0.0, 1.0]] * n), population_size=size)
    normal = np.random.RandomState(n)
    for _ in range(40):
        points = [ours.sample(normal) for _ in range(size)]
        theirs.tell([(x, function(x)) for x in points])
        ours.update(sorted(points, key=function))
        for a, b in (
            (ours.mean, theirs._mean),
            (ours.sigma, theirs._sigma),
            (ours.covariance, theirs._C),
            (ours.p_sigma, theirs._p_sigma),
            (ours.p_c, theirs._pc),
        ):
            assert np.array_equal(a, b)
    assert function is steps or function(ours.mean) < function(start)


def test_the_example_of_the_docstring_runs() -> None:
    """It is what a reader tries first."""
    found = doctest.testmod(covariance_adaptation)
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("n", [2, 3, 10, 100, 1000])
@pytest.mark.parametrize("size", [4, 5, 12, 101])
def test_the_constants_are_those_of_the_package(n: int, size: int) -> None:
    """And the asserts on them hold from small searches to large ones."""
    ours, theirs = rates(n, size), CMA(np.zeros(n), 1.0, population_size=size)
    assert np.array_equal(ours.weights, theirs._weights)
    assert ours[2:] == (
        theirs._mu_eff,
        theirs._c_sigma,
        theirs._d_sigma,
        theirs._cc,
        theirs._c1,
        theirs._cmu,
    )
    # (52): what the covariance decays by leaves room for the negative weights.
    decay = 1 - ours.c_1 - ours.c_mu * float(ours.weights.sum())
    negative = float(-ours.weights[ours.weights < 0].sum())
    assert decay > 0
    assert ours.c_mu * n * negative <= 1 - ours.c_1 - ours.c_mu + 1e-12


def test_points_stay_within_the_bounds() -> None:
    """With a step size of 50 next to no point is inside: 101 draws, and the last one is clipped."""
    cma, normal = CovarianceAdaptation(np.full(3, 0.5), 50.0, 4), np.random.RandomState(1)
    point = cma.sample(normal)
    assert set(point.tolist()) <= {0.0, 1.0}
    again = np.random.RandomState(1)
    again.randn(101, 3)
    assert normal.randn() == again.randn()
    near = CovarianceAdaptation(np.full(3, 0.01), 0.1, 4)
    points = np.array([near.sample(normal) for _ in range(200)])
    assert points.min() > 0  # drawn again, not clipped
    assert points.max() < 1


def test_points_do_not_hang_on_the_basis_of_equal_eigenvalues() -> None:
    """Another processor finds other eigenvectors of them; the points stay."""
    n = 15
    squares = np.diag([2.0] + [1.0] * (n - 1))
    turn = np.eye(n)
    turn[1:3, 1:3] = [[0.6, -0.8], [0.8, 0.6]]
    found = []
    for basis in (np.eye(n), turn):
        cma = CovarianceAdaptation(np.full(n, 0.5), 0.1, 4)
        cma._eigen = basis, np.sqrt(np.diag(squares))
        normal = np.random.RandomState(7)
        found.append(np.array([cma.sample(normal) for _ in range(4)]))
    assert np.abs(found[0] - found[1]).max() < 1e-12
    assert np.std(found[0]) > 0.01


@pytest.mark.parametrize(
    ("mean", "sigma", "size", "said"),
    [
        ([0.5], 0.1, 4, "at least 4 points of 2 genes"),
        ([0.5, 0.5], 0.1, 3, "at least 4 points of 2 genes"),
        ([0.5, 0.5], 0.0, 4, "must be above 0"),
        ([0.5, 1.5], 0.1, 4, "within 0 to 1"),
    ],
)
def test_what_is_no_distribution_is_refused(
    mean: list[float], sigma: float, size: int, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        CovarianceAdaptation(np.array(mean), sigma, size)
