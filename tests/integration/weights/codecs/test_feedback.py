"""Error feedback, against the slow derivation of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.codecs.feedback.error_feedback import fed_back, inverse_factor
from testing.models.layers import gram, matrix, weighted_error

STEP = 0.03


def rounded(column: torch.Tensor) -> torch.Tensor:
    return (column / STEP).round() * STEP


def slowly(
    weights: torch.Tensor, h: torch.Tensor, damping: float, quantise: Any = rounded
) -> torch.Tensor:
    """Optimal brain quantisation in fixed order (arXiv 2210.17323, equation 2), an inverse a column.

    The columns that are left answer the error of the first of them by −e [H_F⁻¹]_{0,:} / [H_F⁻¹]_{00}.
    """
    left = weights.double().clone()
    damped = h + torch.eye(len(h), dtype=torch.float64) * damping * h.diagonal().mean()
    done = torch.empty_like(left)
    for j in range(len(h)):
        inverse = torch.linalg.inv(damped[j:, j:])
        done[:, j] = quantise(left[:, j])
        error = (left[:, j] - done[:, j]) / inverse[0, 0]
        left[:, j:] -= error[:, None] * inverse[0]
    return done.to(weights.dtype)


@pytest.mark.parametrize("block", [1, 5, 8, 128])
def test_blocks_compute_what_an_inverse_a_column_computes(block: int) -> None:
    """The Cholesky factor's rows are the rows of those inverses (section 3.3, step 3)."""
    weights, h = matrix(6, 21), gram(21)
    found = fed_back(weights, h, lambda _, ahead: rounded(ahead[:, 0]), 0.01, block)
    assert torch.allclose(found, slowly(weights, h, 0.01), atol=1e-6)


def test_a_float64_matrix_is_fed_back_in_float64() -> None:
    """Without blocks, to the last bits of the slow derivation; nothing passes through float32.

    Bits of the largest value: a small one is a difference of larger ones, and each processor rounds
    those in an order of its own.
    """
    weights, h = matrix(6, 21).double(), gram(21)
    found = fed_back(weights, h, lambda _, ahead: ahead[:, 0] / 3, 0.01, 21)
    expected = slowly(weights, h, 0.01, lambda x: x / 3)
    assert found.dtype == torch.float64
    assert torch.allclose(found, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))


def test_the_factor_is_that_of_the_damped_inverse() -> None:
    """Uᵀ U (H + λI) = I, U upper triangular."""
    h = gram(12)
    upper = inverse_factor(h, 0.1)
    damped = h + torch.eye(12, dtype=torch.float64) * 0.1 * h.diagonal().mean()
    assert torch.equal(upper, upper.triu())
    assert torch.allclose(upper.T @ upper @ damped, torch.eye(12, dtype=torch.float64), atol=1e-9)


def test_feedback_errs_less_in_what_the_layer_puts_out() -> None:
    """By more than half on inputs whose columns depend on one another, though the weights err more."""
    weights, h = matrix(32, 64), gram(64)
    plain = rounded(weights) - weights
    fed = fed_back(weights, h, lambda _, ahead: rounded(ahead[:, 0])) - weights
    assert weighted_error(fed, h) < 0.5 * weighted_error(plain, h)
    assert fed.norm() > plain.norm()


def test_in_order_the_largest_inputs_come_first() -> None:
    """The same as with columns that were put into that order by hand, and put back."""
    weights, h = matrix(6, 21), gram(21)
    order = sorted(range(21), key=lambda j: -float(h[j, j]))
    seen = []

    def quantise(column: int, ahead: torch.Tensor) -> torch.Tensor:
        seen.append(column)
        return rounded(ahead[:, 0])

    found = fed_back(weights, h, quantise, ordered=True)
    assert seen == order
    by_hand = slowly(weights[:, order], h[order][:, order], 0.01)
    assert torch.allclose(found[:, order], by_hand, atol=1e-6)


def test_without_dependence_feedback_is_plain_rounding() -> None:
    """Columns that do not depend on one another have no answer to give; nor has a gram of zeros."""
    weights = matrix(5, 9)
    for h in (torch.diag(torch.arange(1.0, 10.0).double()), torch.zeros(9, 9).double()):
        found = fed_back(weights, h, lambda _, ahead: rounded(ahead[:, 0]))
        assert torch.equal(found, rounded(weights))


def test_columns_without_input_and_few_samples_are_damped() -> None:
    """A gram of less rank than columns has an inverse once it is damped."""
    h = gram(16, samples=3)
    h[4], h[:, 4] = 0.0, 0.0
    found = fed_back(matrix(4, 16), h, lambda _, ahead: rounded(ahead[:, 0]))
    assert torch.isfinite(found).all()


def test_what_is_no_gram_is_refused() -> None:
    """A negative diagonal is no mean of squares."""
    with pytest.raises(ConfigError, match="positive definite"):
        inverse_factor(torch.diag(torch.tensor([1.0, -50.0, 60.0]).double()), 0.01)
