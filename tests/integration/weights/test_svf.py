"""Singular values: numpy's decomposition with fixed signs; changes add up, ones change nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.runs import keys
from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceError
from agent_forge.weights import operations, svf
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.operations.mixture import role
from agent_forge.weights.recipes import Transform
from agent_forge.weights.tensors import Tensors
from testing.models.toy_training import INIT, model

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9))


def matrix(shape: tuple[int, int], *key: str | int) -> torch.Tensor:
    """A matrix of fixed numbers."""
    return torch.from_numpy(keys.generator("svf", *key).standard_normal(shape)).float()


def svd(parts: tuple[str, ...] = ("mlp",)) -> Tensors:
    """The decomposition of the toy model."""
    told = Transform(operation="svf-decompose@1", inputs={"of": INIT.id}, params={"parts": list(parts)})
    return operations.apply(told, {"of": model()})


@settings(max_examples=60, deadline=None)
@given(shape=SIZES, seed=st.integers(0, 1000))
def test_factors_are_numpys_with_fixed_signs(shape: tuple[int, int], seed: int) -> None:
    given_ = matrix(shape, seed)
    u, s, vt = svf.factors(given_)
    own_u, own_s, own_vt = np.linalg.svd(given_.double().numpy(), full_matrices=False)
    assert np.allclose(s, own_s, atol=1e-12)
    assert np.allclose((u * s) @ vt, given_.double(), atol=1e-12)
    for column in range(len(s)):
        place = int(np.argmax(np.abs(u[:, column].numpy())))
        assert u[place, column] > 0
        sign = np.sign(own_u[place, column])
        assert np.allclose(u[:, column], own_u[:, column] * sign, atol=1e-9)
        assert np.allclose(vt[column], own_vt[column] * sign, atol=1e-9)


def test_the_signs_do_not_depend_on_the_library() -> None:
    """A decomposition with all signs turned is given back as the same one."""
    given_ = matrix((6, 4), "signs")
    u, s, vt = svf.factors(given_)
    again = svf.factors(((-u) * s) @ (-vt))
    for one, other in zip((u, s, vt), again, strict=True):
        assert torch.allclose(one, other, atol=1e-9)


def test_the_matrices_of_the_asked_parts_are_decomposed() -> None:
    mlp = [n for n, *_ in svf.matrices(svd().weights)]
    assert len(mlp) == 6  # three in each of two blocks
    assert all(".mlp." in name for name in mlp)
    both = [n for n, *_ in svf.matrices(svd(("attention", "mlp")).weights)]
    assert len(both) == 14  # and four more; biases are no matrices
    with pytest.raises(ConfigError, match="nothing to decompose"):
        svf.decomposed({"model.norm.weight": torch.ones(3)}, ("mlp",))
    broken = {"model.layers.0.mlp.up_proj.weight": torch.full((2, 2), float("nan"))}
    with pytest.raises(NotFiniteError, match="up_proj"):
        svf.decomposed(broken, ("mlp",))


def vectors(*key: str) -> Tensors:
    """Vectors of fixed numbers around one."""
    ones = svf.ones(svd().weights)
    drawn = {n: 1 + 0.3 * matrix((1, len(z)), n, *key)[0] for n, z in ones.items()}
    return Tensors({}, drawn)


def mixture(
    models: dict[str, float], experts: dict[str, float], given_: dict[str, Tensors]
) -> dict[str, torch.Tensor]:
    """The weights of a mixture: name of a model or of vectors → factor."""
    roles = {"of": "of"} | ({"svd": "svd"} if experts else {})
    for kind, some in (("model", models), ("expert", experts)):
        roles |= {role(kind, number): name for number, name in enumerate(some)}
    params = {"models": [*models.values()], "experts": [*experts.values()]}
    recipe = Transform(
        operation="mixture@1", inputs={r: f"{n:0<64}" for r, n in roles.items()}, params=params
    )
    every = {"of": model(), "svd": svd(), **given_}
    made = operations.apply(recipe, {r: every[name] for r, name in roles.items()})
    return dict(made.weights)


def test_ones_give_the_same_weights_to_the_last_bit() -> None:
    ones = operations.apply(Transform(operation="svf-ones@1", inputs={"svd": "1" * 64}), {"svd": svd()})
    found = mixture({}, {"a": 0.7}, {"a": ones})
    assert digest(found) == digest(model().weights)


def test_vectors_scale_singular_values() -> None:
    """The definition, W(z) = U diag(s z) Vᵀ, by numpy in float64; and no other tensor changes."""
    z = vectors("a")
    found = mixture({}, {"a": 1.0}, {"a": z})
    for name, tensor in model().weights.items():
        if name not in z.weights:
            assert torch.equal(found[name], tensor)
            continue
        u, s, vt = np.linalg.svd(tensor.double().numpy(), full_matrices=False)
        signs = np.sign(u[np.abs(u).argmax(0), np.arange(len(s))])
        expected = (u * signs * s * z.weights[name].double().numpy()) @ (vt * signs[:, None])
        assert np.allclose(found[name], expected, atol=1e-6)


def test_a_mixture_is_the_sum_of_its_parts() -> None:
    """Half of one expert, a third of another and a quarter of a model, by hand in float64."""
    other = Tensors({}, {n: t + 0.1 * torch.ones_like(t) for n, t in model().weights.items()})
    given_ = {"a": vectors("a"), "b": vectors("b"), "m": other}
    found = mixture({"m": 0.25}, {"a": 0.5, "b": 1 / 3}, given_)
    for name, tensor in model().weights.items():
        expected = tensor.double() + 0.25 * (other.weights[name].double() - tensor.double())
        for vector, factor in (("a", 0.5), ("b", 1 / 3)):
            if name in given_[vector].weights:
                alone = mixture({}, {vector: 1.0}, given_)[name]
                expected = expected + factor * (alone.double() - tensor.double())
        assert torch.allclose(found[name].double(), expected, atol=1e-6)


def test_a_factor_of_zero_changes_nothing() -> None:
    other = Tensors({}, {n: t + 1 for n, t in model().weights.items()})
    found = mixture({"m": 0.0}, {"a": 0.0}, {"m": other, "a": vectors("a")})
    assert digest(found) == digest(model().weights)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="mixture reads"):
        operations.apply(
            Transform(
                operation="mixture@1", inputs={"of": "1" * 64}, params={"models": [], "experts": [1.0]}
            ),
            {"of": model()},
        )
    with pytest.raises(SourceError, match="the vectors do not fit"):
        svf.of_vectors(svd().weights, {"x": torch.ones(2)})
    whole = vectors("a").weights
    with pytest.raises(SourceError, match="there is no matrix other"):
        svf.of_vectors(svd().weights, {**whole, "other": torch.ones(2)})
    with pytest.raises(SourceError, match="only one of the two models has tensor"):
        svf.of_model(model().weights, {})
    with pytest.raises(SourceError, match="has shapes"):
        svf.of_model({"a": torch.ones(2)}, {"a": torch.ones(3)})
    with pytest.raises(ConfigError, match="reads the input of"):
        operations.apply(Transform(operation="svf-decompose@1", params={"parts": ["mlp"]}), {})
    with pytest.raises(ConfigError, match="reads the input svd"):
        operations.apply(Transform(operation="svf-ones@1"), {})
