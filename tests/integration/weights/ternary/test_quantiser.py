"""The quantisers of BitNet b1.58, by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.ternary import quantiser

#: mean |W| = (0.5 + 1.5 + 0.2 + 0.1 + 1.0 + 0.3) / 6 = 0.6
WEIGHT = torch.tensor([[0.5, -1.5, 0.2], [0.1, 1.0, -0.3]])


def test_weights_are_rounded_by_the_mean_of_their_absolute_values() -> None:
    """0.5/0.6 → 1, −1.5/0.6 → −1 (clipped), 0.2/0.6 → 0, 0.1/0.6 → 0, 1/0.6 → 1, −0.3/0.6 → 0.

    −0.3/(0.6 + ε) is just inside of one half.
    """
    assert quantiser.mean_scale(WEIGHT).item() == pytest.approx(0.6)
    wanted = torch.tensor([[0.6, -0.6, 0.0], [0.0, 0.6, 0.0]])
    torch.testing.assert_close(quantiser.quantise(WEIGHT), wanted)


def test_a_group_of_columns_has_a_scale_of_its_own_in_each_row() -> None:
    """Rows of 4 in groups of 2: means of [1, 3], [0.1, 0.1], [0, 0], [2, 0]."""
    weight = torch.tensor([[1.0, -3.0, 0.1, -0.1], [0.0, 0.0, 2.0, 0.0]])
    scale = quantiser.mean_scale(weight, 2)
    torch.testing.assert_close(scale, torch.tensor([[2.0, 0.1], [0.0, 1.0]]))
    wanted = torch.tensor([[0.0, -2.0, 0.1, -0.1], [0.0, 0.0, 1.0, 0.0]])
    torch.testing.assert_close(quantiser.quantise(weight, 2), wanted)  # 1/2 → 0, to the even one


def test_activations_are_whole_steps_of_each_token_s_own_scale() -> None:
    """Token 1 has a = 2.54, so steps of 0.02; token 2 is zero."""
    x = torch.tensor([[2.54, -0.031, 0.0], [0.0, 0.0, 0.0]])
    whole, factor = quantiser.int8(x)
    assert whole.tolist() == [[127, -2, 0], [0, 0, 0]]
    assert factor.tolist() == [[pytest.approx(50)], [pytest.approx(127 / 1e-5)]]


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_gradient_passes_as_if_nothing_were_rounded(share: float) -> None:
    """The gradient of Σ c·y by W is c, whatever λ; the value is (1 − λ) W + λ W̃, at 1 exactly W̃."""
    weight = WEIGHT.clone().requires_grad_()
    rounded = quantiser.quantise(weight.detach())
    value = quantiser.straight_through(weight, rounded, share)
    upstream = torch.arange(6.0).reshape(2, 3)
    (value * upstream).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, upstream)
    torch.testing.assert_close(value.detach(), (1 - share) * WEIGHT + share * rounded)
    if share == 1.0:
        assert torch.equal(value.detach(), rounded)


@given(
    rows=st.integers(1, 5),
    groups=st.integers(1, 4),
    group=st.sampled_from([0, 1, 3]),
    seed=st.integers(0, 99),
)
def test_a_ternary_matrix_comes_apart_into_trits_and_scales_and_back(
    rows: int, groups: int, group: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, groups * (group or 2), generator=generator)
    ternary = quantiser.quantise(weight, group)
    trits, scale = quantiser.parts("w", ternary, group)
    assert trits.dtype == torch.int8
    assert torch.equal(trits * quantiser.spread(scale, ternary.shape[1]), ternary)


def test_what_is_not_ternary_or_has_no_such_groups_is_refused() -> None:
    with pytest.raises(SourceError, match="w is not ternary"):
        quantiser.parts("w", WEIGHT)
    two = torch.tensor([[1.0, -1.0, 2.0, 0.0]])
    with pytest.raises(SourceError, match="one s for the tensor"):
        quantiser.parts("w", two)
    assert quantiser.parts("w", two, 2)[1].tolist() == [[1.0, 2.0]]
    with pytest.raises(ConfigError, match="groups of 3 columns do not divide the 4 of w"):
        quantiser.parts("w", two, 3)
