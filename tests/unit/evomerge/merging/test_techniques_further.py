"""nuslerp, multislerp, arcee_fusion, ram and ramplus_tl: by hand, and on a base beside references."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from agent_forge.evomerge.merging import method_registry
from agent_forge.evomerge.merging.kernels.chunks import CHUNK, ChunkPool, Stretches, as_rows
from agent_forge.evomerge.merging.methods import arcee_fusion, multislerp, nuslerp, ramplus_tl
from agent_forge.runs.errors import ConfigError
from testing.models.toy_tensors import close, t


def merged(
    name: str,
    *inputs: torch.Tensor,
    base: torch.Tensor | None = None,
    threads: int = 1,
    **params: object,
) -> torch.Tensor:
    """Return a technique's result on models with a base, or without one."""
    given = method_registry.parameters(name, params)
    out = torch.empty_like(inputs[0])
    with ChunkPool(threads) as pool:
        origin = None if base is None else as_rows(base)
        work = Stretches("w", origin, [as_rows(x) for x in inputs], pool)
        merge = method_registry.prepare(name, work, given, 0)
        for cut in work.cuts:
            assert work.run([merge], cut, [as_rows(out)[cut]]) == 0
    return out


def floats(seed: int, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.from_numpy(scale * np.random.default_rng(seed).standard_normal(shape)).float()


def kin(seed: int, count: int, *shape: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return a base and models that differ from it a little."""
    base = floats(seed, *shape, scale=0.05)
    return base, [base + floats(seed + 1 + i, *shape, scale=0.01) for i in range(count)]


def deltas(base: torch.Tensor, models: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return float64 task vectors [models, rows, columns], which references take."""
    return torch.stack([as_rows(x).double() - as_rows(base).double() for x in models])


# ---- nuslerp -------------------------------------------------------------------------------


def test_nuslerp_of_a_right_angle_by_weights() -> None:
    """Equal weights, t = ½, give √½ of both; 1 to 3 sin 22.5°, sin 67.5°; lengths stay."""
    assert close(merged("nuslerp", t(2, 0), t(0, 4)), math.sqrt(2), 2 * math.sqrt(2))
    angle = math.pi / 8
    found = merged("nuslerp", t(1, 0), t(0, 1), weights=(1.0, 3.0))
    assert close(found, math.sin(angle), math.cos(angle))


def test_nuslerp_on_a_base_takes_the_angle_of_the_task_vectors() -> None:
    """Task vectors at 90° though the weights are nearly parallel: base + (√½, √½)."""
    base = t(100, 100)
    found = merged("nuslerp", base + t(1, 0), base + t(0, 1), base=base)
    assert torch.allclose(found, base + math.sqrt(0.5), rtol=1e-6)


A, B = torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
HALF = math.sqrt(0.5)


def test_nuslerp_by_row_and_by_column_has_an_angle_for_each() -> None:
    """The first columns are at 90°, the second ones are equal.

    Rows (1, 1) and (0, 1) are at 45°, whose half has the factor 1/(2 cos 22.5°); of (0, 0) and (1, 0)
    one is zero: the mean.
    """
    assert close(merged("nuslerp", A, B, by="column"), HALF, 1, HALF, 0)
    row = 1 / (2 * math.cos(math.pi / 8))
    assert close(merged("nuslerp", A, B, by="row"), row, 2 * row, 0.5, 0)


def test_nuslerp_follows_the_arc_where_slerp_does_not_and_never_divides_by_nothing() -> None:
    """Cos 0.9996: slerp is straight there. Parallel, opposite and zero vectors have no arc."""
    first, _ = nuslerp.coefficients(np.array([1.0, 1.0, 0.9996]), 0.5)
    assert float(first) == pytest.approx(1 / (2 * math.cos(math.acos(0.9996) / 2)), abs=1e-12)
    assert close(merged("nuslerp", t(2, 2), t(6, 6), weights=(3.0, 1.0)), 3, 3)
    assert close(merged("nuslerp", t(2, -4), t(-2, 4), weights=(3.0, 1.0)), 1, -2)
    assert close(merged("nuslerp", t(0, 0), t(8, 4), weights=(3.0, 1.0)), 2, 1)
    assert close(merged("nuslerp", t(0, 0), t(0, 0)), 0, 0)


def test_nuslerp_refuses_three_models_and_weights_without_a_sum() -> None:
    with pytest.raises(ConfigError, match="takes two models, not 3"):
        merged("nuslerp", t(1), t(2), t(3))
    with pytest.raises(ConfigError, match="add up to"):
        merged("nuslerp", t(1), t(2), weights=(1.0, -1.0))


@pytest.mark.parametrize("by", ["row", "column"])
def test_nuslerp_of_several_stretches_is_the_plain_one(by: Any) -> None:
    """Columns go through all stretches: their products are added up."""
    base, models = kin(1, 2, CHUNK // 2 + 5, 5)
    params = nuslerp.Params(by=by, weights=(0.2, 0.6))
    found = merged("nuslerp", *models, base=base, **params.model_dump())
    wanted = base.double() + nuslerp.reference(deltas(base, models), params)
    assert torch.allclose(found.double(), wanted, atol=1e-7)


# ---- multislerp ----------------------------------------------------------------------------


def test_multislerp_is_the_mean_direction_at_the_mean_length() -> None:
    """Lengths 1 and 3 at 90°: 45°, 2. Weights 3 to 1 of unit vectors: (3, 1)/√10. Three axes alike."""
    assert close(merged("multislerp", t(1, 0), t(0, 3)), math.sqrt(2), math.sqrt(2))
    found = merged("multislerp", t(1, 0), t(0, 1), weights=(3.0, 1.0))
    assert close(found, 3 / math.sqrt(10), 1 / math.sqrt(10))
    third = 2 / math.sqrt(3)
    assert close(merged("multislerp", t(1, 0, 0), t(0, 2, 0), t(0, 0, 3)), third, third, third)


def test_multislerp_may_take_its_weights_as_they_are() -> None:
    """Lengths add up to 2 instead of 1 on the average."""
    found = merged("multislerp", t(1, 0), t(0, 1), normalise=False)
    assert close(found, math.sqrt(2), math.sqrt(2))


def test_multislerp_of_one_of_zeros_and_of_what_cancels() -> None:
    assert torch.equal(merged("multislerp", t(0.1, 0.7), weights=(0.3,)), t(0.1, 0.7))
    assert close(merged("multislerp", t(0, 0), t(0, 4)), 0, 2)
    assert close(merged("multislerp", t(0, 0), t(0, 0)), 0, 0)
    assert close(merged("multislerp", t(2, 0), t(-1, 0)), 0.5, 0)
    third = 2 * math.pi / 3
    around = [t(math.cos(k * third), math.sin(k * third)) for k in range(3)]
    assert torch.allclose(merged("multislerp", *around), t(0, 0), atol=1e-6)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_multislerp_needs_no_step_in_the_tangent_space(count: int) -> None:
    """The weighted parts at a right angle to their own mean add up to nothing."""
    base, models = kin(10 * count, count, 40, 30)
    weights = tuple(0.5 + i for i in range(count))
    found = merged("multislerp", *models, base=base, weights=weights)
    params = multislerp.Params(weights=weights)
    wanted = base.double() + multislerp.reference(deltas(base, models), params)
    assert torch.allclose(found.double(), wanted, atol=1e-8)
    assert multislerp.Params().normalise


# ---- arcee fusion --------------------------------------------------------------------------


def test_arcee_fusion_keeps_the_outliers_of_a_vector() -> None:
    """Of 0 … 7 and 20 the quartiles are 2, 4, 6: the threshold is 4 + 1.5·4 = 10.

    Of 1, 2, 3, 100 they are the elements ⌊¾⌋, ⌊3/2⌋, ⌊9/4⌋ in order, 1, 2, 3: the threshold is 5.
    """
    base = t(*[1.0] * 9)
    moved = t(0, -1, 2, -3, 4, -5, 6, -7, -20)
    found = merged("arcee_fusion", base + moved, base=base)
    assert close(found, *[1.0] * 8, -19.0)
    found = merged("arcee_fusion", t(3, 100, 1, 2), base=t(0, 0, 0, 0))
    assert close(found, 0, 100, 0, 0)


def test_arcee_fusion_measures_the_divergence_of_rows() -> None:
    """Shares ¼, ¾ beside ½, ½: ¼ ln ½ + ¾ ln 3/2. A row moved as one has the same softmax: none."""
    new, old = torch.tensor([[0.0, math.log(3)], [2.0, 2.0]]), torch.zeros(2, 2)
    wanted = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    found = arcee_fusion.divergence(new, old)
    assert torch.allclose(found, t(wanted, 0), atol=1e-7)


def test_arcee_fusion_of_an_unchanged_model_is_the_base() -> None:
    base = floats(1, 6, 5)
    assert torch.equal(merged("arcee_fusion", base.clone(), base=base), base)


def test_arcee_fusion_takes_a_base_and_one_other() -> None:
    with pytest.raises(ConfigError, match="a base and one other model, not 2"):
        merged("arcee_fusion", t(1), t(2), base=t(0))


# ---- ram -----------------------------------------------------------------------------------


def test_ram_averages_over_those_who_changed_an_element() -> None:
    """Changed by both: (1 + 3)/2; by one: 2 and 4 whole, not halved; by none: the base."""
    base = t(10, 10, 10, 10)
    found = merged("ram", base + t(1, 2, 0, 0), base + t(3, 0, 0, 4), base=base)
    assert close(found, 12, 12, 10, 14)


def test_ram_does_not_count_changes_up_to_epsilon() -> None:
    """½ is not above ½: 3 is not halved by it, and it is dropped where nobody else changed."""
    found = merged("ram", t(0.5, 0.5), t(3, 0), base=t(0, 0), epsilon=0.5)
    assert close(found, 3, 0)


def test_ramplus_scales_up_what_is_one_models_own() -> None:
    """Model 1 shares one and has one alone: ρ = 1, λ = 1 + 0.4·1. Model 2: ρ = ¼, λ = 1.1."""
    first, second = t(1, 1, 0, 0, 0, 0, 0), t(3, 0, 5, 5, 5, 5, 0)
    found = merged("ramplus_tl", first, second, base=torch.zeros(7), r=0.4, alpha=1.0)
    assert close(found, 2, 1.4, 5.5, 5.5, 5.5, 5.5, 0)
    found = merged("ramplus_tl", first, second, base=torch.zeros(7))  # r = 0.1, α = 0.2
    assert close(found, 2, 1.02, 5.1, 5.1, 5.1, 5.1, 0)


def test_ramplus_of_a_model_with_nothing_of_its_own() -> None:
    """No division by its count of zero."""
    assert ramplus_tl.factors([5, 5], [0, 1], ramplus_tl.Params()) == [1.0, 1.02]
    assert close(merged("ramplus_tl", t(1, 0), t(3, 4), base=t(0, 0)), 2, 4.08)


@pytest.mark.parametrize(("name", "r"), [("ram", 0.0), ("ramplus_tl", 0.3)])
def test_ram_of_sparse_models_is_the_plain_one(name: str, r: float) -> None:
    """In several stretches, whose counts are added up."""
    base, models = kin(5, 4, CHUNK // 64 + 3, 80)
    rng = np.random.default_rng(9)
    for model in models:
        untouched = torch.from_numpy(rng.uniform(size=model.shape) < 0.6)
        model[untouched] = base[untouched]
    given: dict[str, Any] = {"r": r, "alpha": 0.9} if r else {}
    found = merged(name, *models, base=base, **given)
    params = method_registry.parameters(name, given)
    wanted = base.double() + method_registry.module(name).reference(deltas(base, models), params)
    assert torch.allclose(found.double(), wanted, atol=1e-7)


# ---- all of them ---------------------------------------------------------------------------

CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "nuslerp": (2, {"by": "tensor"}),
    "nuslerp by row": (2, {"by": "row"}),
    "nuslerp by column": (2, {"by": "column"}),
    "multislerp": (3, {}),
    "arcee_fusion": (1, {}),
    "ram": (3, {}),
    "ramplus_tl": (3, {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_bits_for_any_number_of_threads(case: str, dtype: torch.dtype) -> None:
    """What is measured in stretches is put together in their order."""
    count, params = CASES[case]
    base, models = kin(7, count, 700, 800)
    inputs, origin = [m.to(dtype) for m in models], base.to(dtype)
    found = [
        merged(case.split()[0], *inputs, base=origin, threads=threads, **params) for threads in (1, 3)
    ]
    assert torch.equal(*found)
    assert not torch.equal(found[0], origin)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", [(1,), (1, 1), (5, 1), (1, 6), (2, 3, 4)])
def test_odd_shapes_are_finite(case: str, shape: tuple[int, ...]) -> None:
    count, params = CASES[case]
    base, models = kin(8, count, *shape)
    for inputs in (models, [base.clone() for _ in models]):
        found = merged(case.split()[0], *inputs, base=base, **params)
        assert bool(torch.isfinite(found).all())
    assert torch.allclose(found, base, atol=1e-8)


@pytest.mark.parametrize("name", ["multislerp", "ram", "ramplus_tl"])
def test_the_order_of_models_does_not_matter(name: str) -> None:
    base, models = kin(9, 4, 30, 20)
    ours, theirs = (merged(name, *inputs, base=base) for inputs in (models, models[::-1]))
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ram", {"epsilon": -1}),
        ("ramplus_tl", {"alpha": -1}),
        ("multislerp", {"eps": 0}),
        ("nuslerp", {"by": "layer"}),
    ],
)
def test_parameters_out_of_range_are_named(name: str, given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"{name}: parameter {next(iter(given))}"):
        method_registry.parameters(name, given)
