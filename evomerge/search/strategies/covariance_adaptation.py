"""CMA-ES: a normal distribution that adapts its mean, step size and covariance to ranked points.

Source: Hansen 2016, "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772. Numbers in parentheses
are the equations of its appendix A. Only numpy; every figure follows from the points and their order.

A search replays a distribution from its log, so this arithmetic is part of what a run's log means:
the order of the operations is kept. c_μ is that of the tutorial's first version, which has no 1/4
in its numerator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Added to a squared length that is divided by, and put in place of a negative eigenvalue.
_EPSILON = 1e-8
#: The step size stays below this.
_LARGEST_SIGMA = 1e32
#: Draws of a point before it is moved to the bounds.
_DRAWS = 100


class SearchConstants(NamedTuple):
    """Constants of a search, by its dimension n and the size λ of its generations (table 1)."""

    #: μ, the number of points that the mean follows.
    mu: int
    #: Weight of each point [λ], the best first; negative ones for the worse half.
    weights: Floats
    mu_eff: float
    c_sigma: float
    d_sigma: float
    c_c: float
    c_1: float
    c_mu: float


def rates(n: int, size: int) -> SearchConstants:
    """Return the `SearchConstants` for `n` dimensions and generations of `size` points."""
    mu = size // 2
    raw = np.array([math.log((size + 1) / 2) - math.log(i) for i in range(1, size + 1)])  # (49)
    mu_eff = np.sum(raw[:mu]) ** 2 / np.sum(raw[:mu] ** 2)
    mu_eff_minus = np.sum(raw[mu:]) ** 2 / np.sum(raw[mu:] ** 2)
    assert 1 <= mu_eff <= mu, mu_eff
    c_1 = 2 / ((n + 1.3) ** 2 + mu_eff)  # (57), α_cov = 2
    c_mu = min(1 - c_1 - 1e-8, 2 * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) ** 2 + mu_eff))  # (58)
    assert c_1 > 0, c_1
    assert 0 < c_mu <= 1 - c_1, c_mu
    alpha = min(
        1 + c_1 / c_mu,  # (50)
        1 + (2 * mu_eff_minus) / (mu_eff + 2),  # (51)
        (1 - c_1 - c_mu) / (n * c_mu),  # (52): the covariance stays positive definite
    )
    assert alpha > 0, alpha
    positive, negative = np.sum(raw[raw > 0]), np.sum(np.abs(raw[raw < 0]))
    weights = np.where(raw >= 0, 1 / positive * raw, alpha / negative * raw)  # (53)
    assert abs(np.sum(weights[:mu]) - 1) < 1e-9, weights
    c_sigma = (mu_eff + 2) / (n + mu_eff + 5)  # (55)
    d_sigma = 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_sigma  # (55)
    c_c = (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n)  # (56)
    assert 0 < c_sigma < 1, c_sigma
    assert d_sigma > 1, d_sigma
    assert 0 < c_c <= 1, c_c
    return SearchConstants(mu, weights, mu_eff, c_sigma, d_sigma, c_c, c_1, c_mu)


class CovarianceAdaptation:
    """Normal distribution over the unit cube [0, 1]ⁿ; names of attributes are the tutorial's.

    >>> import numpy as np
    >>> cma = CovarianceAdaptation(mean=np.array([0.5, 0.5]), sigma=0.2, size=6)
    >>> normal = np.random.RandomState(1)
    >>> for generation in range(40):
    ...     points = [cma.sample(normal) for _ in range(6)]
    ...     points.sort(key=lambda x: (x[0] - 0.3) ** 2 + (10 * (x[1] - 0.6)) ** 2)
    ...     cma.update(points)
    >>> np.round(cma.mean, 3)
    array([0.3, 0.6])
    """

    def __init__(self, mean: Floats, sigma: float, size: int) -> None:
        """Set the start. Raise ValueError: under 4 points or 2 genes, sigma ≤ 0, mean out of bounds."""
        n = len(mean)
        if n < 2 or size < 4:
            raise ValueError(f"{size} points of {n} genes: at least 4 points of 2 genes are needed")
        if not (sigma > 0 and np.all((mean >= 0) & (mean <= 1))):
            raise ValueError(f"sigma {sigma} must be above 0, and the mean within 0 to 1: {mean}")
        self.n, self.size, self.rates = n, size, rates(n, size)
        #: E‖N(0, I)‖.
        self.chi_n = math.sqrt(n) * (1.0 - (1.0 / (4.0 * n)) + 1.0 / (21.0 * (n**2)))
        self.mean, self.sigma = np.array(mean, np.float64), sigma
        self.covariance = np.eye(n)
        self.p_sigma, self.p_c = np.zeros(n), np.zeros(n)
        self.generation = 0
        self._eigen: tuple[Floats, Floats] | None = None

    def sample(self, normal: np.random.RandomState) -> Floats:
        """Return a point [n]: drawn again while it is out of bounds, in the end moved to them."""
        for _ in range(_DRAWS):
            point = self._draw(normal)
            if np.all(point >= 0) and np.all(point <= 1):
                return point
        return np.clip(self._draw(normal), 0.0, 1.0)

    def _draw(self, normal: np.random.RandomState) -> Floats:
        """Return a point [n], m + σ C^½ z, which may be out of bounds.

        The tutorial has B D z, (38) to (40). Eigenvectors of equal eigenvalues are an arbitrary
        basis of their space, which differs between processors and numbers of threads. B D Bᵀ = C^½
        is the same for every basis.
        """
        basis, scale = self.eigen()
        z = normal.randn(self.n)
        return self.mean + self.sigma * (basis @ (scale * (basis.T @ z)))

    def eigen(self) -> tuple[Floats, Floats]:
        """Return (B [n, n], the diagonal of D [n]) with C = B D² Bᵀ; make C exactly that."""
        if self._eigen is None:
            squares, basis = np.linalg.eigh((self.covariance + self.covariance.T) / 2)
            scale = np.sqrt(np.where(squares < 0, _EPSILON, squares))
            self.covariance = (basis * scale**2) @ basis.T
            self._eigen = basis, scale
        return self._eigen

    def update(self, points: Sequence[Floats]) -> None:
        """Move the distribution towards a generation's points, the best first."""
        assert len(points) == self.size, f"{len(points)} points for a size of {self.size}"
        mu, weights, mu_eff, c_sigma, d_sigma, c_c, *_ = self.rates
        basis, scale = self.eigen()
        self._eigen = None
        self.generation += 1
        y = (np.array(points) - self.mean) / self.sigma
        y_w = np.sum(y[:mu].T * weights[:mu], axis=1)  # (41)
        self.mean = self.mean + self.sigma * y_w  # (42), c_m = 1 (54)

        whiten = (basis * (1 / scale)) @ basis.T  # C^−½
        self.p_sigma = (1 - c_sigma) * self.p_sigma + math.sqrt(c_sigma * (2 - c_sigma) * mu_eff) * (
            whiten @ y_w
        )  # (43)
        length = np.linalg.norm(self.p_sigma)
        self.sigma *= np.exp((c_sigma / d_sigma) * (length / self.chi_n - 1))  # (44)
        self.sigma = min(self.sigma, _LARGEST_SIGMA)

        expected = length / math.sqrt(1 - (1 - c_sigma) ** (2 * (self.generation + 1)))
        h_sigma = 1.0 if expected < (1.4 + 2 / (self.n + 1)) * self.chi_n else 0.0
        self.p_c = (1 - c_c) * self.p_c + h_sigma * math.sqrt(c_c * (2 - c_c) * mu_eff) * y_w  # (45)
        self._adapt(y, np.linalg.norm(whiten @ y.T, axis=0), h_sigma)

    def _adapt(self, y: Floats, lengths: Floats, h_sigma: float) -> None:
        """Adapt the covariance to steps y [λ, n] of `lengths` ‖C^−½ y‖ [λ]."""
        weights, c_c, c_1, c_mu = self.rates.weights, *self.rates[-3:]
        scaled = weights * np.where(weights >= 0, 1, self.n / (lengths**2 + _EPSILON))  # (46)
        delta = (1 - h_sigma) * c_c * (2 - c_c)
        assert delta <= 1, delta
        rank_one = np.outer(self.p_c, self.p_c)
        rank_mu = np.sum(scaled.reshape(-1, 1, 1) * (y[:, :, None] * y[:, None, :]), axis=0)
        self.covariance = (
            (1 + c_1 * delta - c_1 - c_mu * np.sum(weights)) * self.covariance
            + c_1 * rank_one
            + c_mu * rank_mu
        )  # (47)
