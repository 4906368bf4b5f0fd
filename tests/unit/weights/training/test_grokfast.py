"""Grokfast-EMA against numbers worked out by hand."""

from __future__ import annotations

import torch

from agent_forge.weights.training.optimisers.grokfast import Grokfast


def _parameter(gradient: list[float] | None) -> torch.nn.Parameter:
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = None if gradient is None else torch.tensor(gradient)
    return parameter


def _filtered(grokfast: Grokfast, gradient: list[float]) -> list[float]:
    parameter = _parameter(gradient)
    grokfast.apply([("w", parameter)])
    assert parameter.grad is not None
    return parameter.grad.tolist()


def test_gradients_are_filtered_as_in_the_paper() -> None:
    """α = 0.5, λ = 2: μ is g₁; then (4 + 0) / 2 = 2; then (2 + 8) / 2 = 5. All exact in float32."""
    grokfast = Grokfast(alpha=0.5, strength=2.0)
    assert _filtered(grokfast, [4.0, -1.0]) == [4 + 2 * 4, -1 - 2 * 1]
    assert _filtered(grokfast, [0.0, 1.0]) == [0 + 2 * 2, 1 + 2 * 0]
    assert _filtered(grokfast, [8.0, 1.0]) == [8 + 2 * 5, 1 + 2 * 0.5]
    assert grokfast.means["w"].tolist() == [5.0, 0.5]


def test_a_constant_gradient_grows_by_one_plus_lambda() -> None:
    """The gain at frequency zero, which the method is named for."""
    grokfast = Grokfast(alpha=0.75, strength=3.0)
    for _ in range(4):
        assert _filtered(grokfast, [1.0, -2.0]) == [4.0, -8.0]


def test_lambda_zero_keeps_nothing_and_changes_nothing() -> None:
    """An average that is kept for nothing would double what a snapshot holds."""
    grokfast = Grokfast(alpha=0.98, strength=0.0)
    assert _filtered(grokfast, [4.0, -0.0]) == [4.0, 0.0]
    assert grokfast.means == {}


def test_a_parameter_without_a_gradient_keeps_its_average() -> None:
    """Parts of a model that a step does not use are not pulled towards zero."""
    grokfast = Grokfast(alpha=0.5, strength=1.0)
    _filtered(grokfast, [4.0, 2.0])
    idle = _parameter(None)
    grokfast.apply([("w", idle)])
    assert idle.grad is None
    assert grokfast.means["w"].tolist() == [4.0, 2.0]
