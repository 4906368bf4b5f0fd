"""RegMean of one layer: by hand, beside the paper's formula, and as a least-squares problem."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_forge.evomerge.merging.methods import regmean


def layers(
    seed: int, count: int, rows: int, columns: int, tokens: int
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return weights [rows, columns] and inputs [tokens, columns] of `count` models, float64."""
    draws = torch.Generator().manual_seed(seed)
    weights = [torch.randn(rows, columns, generator=draws).double() for _ in range(count)]
    inputs = [torch.randn(tokens, columns, generator=draws).double() for _ in range(count)]
    return weights, inputs


def solved(
    weights: list[torch.Tensor], inputs: list[torch.Tensor], shares: list[float], alpha: float
) -> torch.Tensor:
    """Return the merge by the grams of the inputs."""
    return regmean.solve(weights, [x.T @ x / len(x) for x in inputs], shares, alpha)


def test_two_layers_by_hand() -> None:
    """Grams diag(3, 1) and diag(1, 1): first column (3 · 4 + 1 · 0) / 4, second (2 + 6) / 2."""
    weights = [torch.tensor([[4.0, 2.0]]), torch.tensor([[0.0, 6.0]])]
    grams = [torch.diag(torch.tensor([3.0, 1.0])).double(), torch.eye(2).double()]
    torch.testing.assert_close(
        regmean.solve(weights, grams, [1.0, 1.0], 1.0), torch.tensor([[3.0, 4.0]]).double()
    )


def test_elements_off_the_diagonal_count_by_alpha() -> None:
    """G₁ = [[2, 1], [1, 2]], G₂ = I, W₁ = (1, 0), W₂ = 0 and α = ½.

    W is (2, ½) times the inverse of [[3, ½], [½, 3]], [[3, −½], [−½, 3]] / 8¾: (5¾, ½) / 8¾.
    """
    grams = [torch.tensor([[2.0, 1.0], [1.0, 2.0]]).double(), torch.eye(2).double()]
    weights = [torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)]
    torch.testing.assert_close(
        regmean.solve(weights, grams, [1.0, 1.0], 0.5),
        torch.tensor([[5.75 / 8.75, 0.5 / 8.75]]).double(),
    )


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9, 1.0])
def test_it_is_the_papers_formula(alpha: float) -> None:
    """More tokens than columns: the authors' inverse exists, and gives the same."""
    weights, inputs = layers(3, 3, 5, 7, 60)
    shares = [1.0, 0.25, 2.0]
    torch.testing.assert_close(
        solved(weights, inputs, shares, alpha), regmean.reference(weights, inputs, shares, alpha)
    )


@given(st.integers(0, 2**16), st.integers(2, 4), st.integers(1, 5), st.integers(1, 12))
def test_it_has_the_least_distance_of_outputs(seed: int, count: int, columns: int, tokens: int) -> None:
    """No W has a smaller Σ ‖Xᵢ(W − Wᵢ)ᵀ‖² than lstsq finds, also with fewer tokens than columns."""
    weights, inputs = layers(seed, count, 3, columns, tokens)
    stacked = torch.cat(inputs)
    outputs = torch.cat([x @ w.T for x, w in zip(inputs, weights, strict=True)])
    least = torch.linalg.lstsq(stacked, outputs, driver="gelsd").solution
    merged = solved(weights, inputs, [1.0] * count, 1.0)
    distance = (stacked @ merged.T - outputs).square().sum()
    assert float(distance) <= float((stacked @ least - outputs).square().sum()) + 1e-7


def test_directions_that_no_input_has_are_averaged() -> None:
    """The second column is always zero: its weights do not touch any output."""
    weights, inputs = layers(5, 2, 3, 2, 9)
    for x in inputs:
        x[:, 1] = 0.0
    merged = solved(weights, inputs, [1.0, 1.0], 1.0)
    torch.testing.assert_close(merged[:, 1], (weights[0][:, 1] + weights[1][:, 1]) / 2)
    assert bool(solved(weights, [x * 0 for x in inputs], [1.0, 3.0], 0.9).isfinite().all())


def test_equal_layers_merge_into_themselves() -> None:
    """Whatever the inputs are; a singular gram adds nothing."""
    weights, inputs = layers(7, 2, 4, 6, 3)
    merged = solved([weights[0], weights[0]], inputs, [1.0, 1.0], 1.0)
    torch.testing.assert_close(merged, weights[0], rtol=0, atol=1e-12)


def test_a_model_of_weight_zero_has_no_part() -> None:
    """The other's layer is left, wherever its inputs reach."""
    weights, inputs = layers(9, 2, 4, 3, 20)
    torch.testing.assert_close(solved(weights, inputs, [1.0, 0.0], 1.0), weights[0])


def test_columns_of_very_different_size_lose_nothing() -> None:
    """Residual streams have some columns that are a thousand times larger; grams square that."""
    weights, inputs = layers(11, 3, 4, 5, 50)
    sizes = torch.tensor([1e4, 1.0, 1e-4, 1.0, 1e2]).double()
    scaled = solved(weights, [x * sizes for x in inputs], [1.0] * 3, 1.0)
    plain = solved([w * sizes for w in weights], inputs, [1.0] * 3, 1.0)
    torch.testing.assert_close(scaled * sizes, plain)


@pytest.mark.parametrize("alpha", [-0.1, 1.5, float("nan")])
def test_an_alpha_that_is_no_share_is_refused(alpha: float) -> None:
    """Above one the gram may have negative eigenvalues."""
    with pytest.raises(ValidationError):
        regmean.Params(alpha=alpha)
