"""Models that are rounded to ternary weights: which scale each method takes."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.runs.errors import ConfigError, NotFiniteError
from agent_forge.weights import operations
from agent_forge.weights.operations import ternary_pack
from agent_forge.weights.recipes import Transform
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.ternary import quantiser
from testing.models.toy_training import model

SOURCE = {"of": "1" * 64}


def packed(given: Tensors, **params: object) -> Tensors:
    recipe = Transform(operation="ternary-pack@1", inputs=SOURCE, params=params)
    return operations.apply(operations.complete(recipe), {"of": given})


def error(weight: torch.Tensor, trits: torch.Tensor, scale: torch.Tensor) -> float:
    """Σ (W − s t)²."""
    return float((weight - ternary_pack.assembled(trits, scale)).double().square().sum())


@given(seed=st.integers(0, 200), columns=st.integers(1, 5))
def test_least_squares_is_the_best_of_all_ternary_matrices(seed: int, columns: int) -> None:
    """Compared with every choice of trits, each with its own best scale."""
    weight = torch.randn(1, columns, generator=torch.Generator().manual_seed(seed))
    found = error(weight, *ternary_pack.least_squares(weight))
    least = float(weight.double().square().sum())
    for choice in itertools.product((-1, 0, 1), repeat=columns):
        trits = torch.tensor([choice], dtype=torch.float32)
        if count := float(trits.abs().sum()):
            scale = (weight * trits).sum() / count
            least = min(least, error(weight, trits, scale.reshape(1, 1)))
    assert found == pytest.approx(least, rel=1e-5, abs=1e-9)


def test_least_squares_of_groups_are_those_of_each_alone() -> None:
    weight = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    trits, scale = ternary_pack.least_squares(weight, 4)
    assert scale.shape == (3, 2)
    for row, half in itertools.product(range(3), range(2)):
        alone = weight[row : row + 1, 4 * half : 4 * half + 4]
        one, its = ternary_pack.least_squares(alone)
        assert torch.equal(trits[row : row + 1, 4 * half : 4 * half + 4], one)
        assert scale[row, half] == its


def test_sigma_keeps_what_is_above_half_of_its_scale() -> None:
    """Deviation of ±1, ±3 is √5; 1.5 of that is 3.354, half of it 1.677: ±3 stays."""
    weight = torch.tensor([[1.0, -1.0, 3.0, -3.0]])
    params = ternary_pack.Packing(method="sigma", sigmas=1.5)
    trits, scale = ternary_pack.rounded(weight, params)
    assert trits.tolist() == [[0, 0, 1, -1]]
    assert scale.item() == pytest.approx(1.5 * 5**0.5)


def test_absmean_is_what_the_objective_computes_with() -> None:
    made = packed(model(), group=8)
    name = "model.layers.0.mlp.down_proj.weight"
    wanted = quantiser.quantise(model().weights[name], 8)
    assert torch.equal(made.weights[name], wanted)


@pytest.mark.parametrize("method", ["absmean", "least-squares", "sigma"])
def test_every_linear_layer_is_ternary_and_all_else_stays(method: str) -> None:
    made = packed(model(), method=method)
    for name, tensor in model().weights.items():
        if "_proj.weight" in name:
            trits, _ = quantiser.parts(name, made.weights[name])
            assert set(trits.flatten().tolist()) == {-1, 0, 1}
            assert not torch.signbit(made.weights[name][trits == 0]).any(), "no negative zeros"
        else:
            assert torch.equal(made.weights[name], tensor)


def test_absmean_is_the_worst_for_ordinary_weights() -> None:
    """Normal weights, relative errors: so a run compares its training with a better rounding."""
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    errors = {}
    for method in ("absmean", "least-squares", "sigma"):
        params = ternary_pack.Packing(method=method, sigmas=1.22)  # type: ignore[arg-type]
        errors[method] = error(weight, *ternary_pack.rounded(weight, params))
    assert errors["least-squares"] < errors["sigma"] < errors["absmean"]


def test_what_cannot_be_packed_is_refused() -> None:
    with pytest.raises(ConfigError, match="groups of 5 columns"):
        packed(model(), group=5)
    name = "model.layers.1.self_attn.q_proj.weight"
    broken = dict(model().weights) | {name: torch.full((16, 16), float("nan"))}
    with pytest.raises(NotFiniteError, match=name):
        packed(Tensors(model().config, broken))
    with pytest.raises(ConfigError, match="reads the input of"):
        ternary_pack.TernaryPack().apply({}, ternary_pack.Packing(), 0)
