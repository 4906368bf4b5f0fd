"""The further techniques by hand, the inner loops against torch, and selection against sorting."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.evomerge.merging import method_registry
from agent_forge.evomerge.merging.kernels import inner_loops
from agent_forge.evomerge.merging.kernels.chunks import CHUNK, ChunkPool, Stretches, as_rows, whole
from agent_forge.evomerge.merging.kernels.fused_merge import Voters
from agent_forge.evomerge.merging.methods import breadcrumbs, della, karcher, model_stock, sce
from agent_forge.evomerge.merging.methods.kth_magnitude import kth_magnitudes, reference
from agent_forge.runs.errors import ConfigError
from testing.models.toy_tensors import close, t


def merged(name: str, *inputs: torch.Tensor, seed: int = 0, **params: object) -> torch.Tensor:
    """A technique on task vectors."""
    given = method_registry.parameters(name, params)
    return whole(inputs, lambda work: method_registry.prepare(name, work, given, seed))


def floats(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).float()


# ---- inner loops ---------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3000), st.booleans())
def test_the_compiled_vote_has_the_bits_of_the_one_in_torch(
    seed: int, count: int, size: int, normalise: bool
) -> None:
    """The one in torch is what a GPU computes; also around the size of a block."""
    x = floats(seed, count, size)
    rng = np.random.default_rng(seed + 1)
    weights = rng.uniform(-1, 1, count).astype(np.float32)
    low = rng.uniform(0, 1, count).astype(np.float32)
    high = (low + rng.uniform(0, 2, count)).astype(np.float32)
    ours = inner_loops.vote(x, weights.tolist(), low.tolist(), high.tolist(), normalise)
    assert torch.equal(ours, inner_loops.vote_torch(x, weights, low, high, normalise))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 6), st.integers(1, 40), st.integers(1, 200))
def test_the_compiled_selection_of_rows_is_that_in_torch(
    seed: int, count: int, rows: int, columns: int
) -> None:
    """Sums in another order: equal to a unit in float32's last place."""
    x = floats(seed, count, rows, columns)
    assert torch.allclose(
        inner_loops.select_rows(x, 0.1), inner_loops.select_rows_torch(x, 0.1), rtol=2e-7, atol=1e-7
    )


def test_results_may_be_put_where_the_first_input_was() -> None:
    """Saves a copy in every pipeline."""
    x = floats(1, 4, 30, 50)
    a = inner_loops.vote(x, [1.0] * 4)
    one = x.clone()
    assert torch.equal(inner_loops.vote(one, [1.0] * 4, out=one[0]), a)


def kth_magnitude(tensor: torch.Tensor, k: int) -> float:
    """The k-th largest |element| of one tensor."""
    work = Stretches("", None, [as_rows(tensor)], ChunkPool(1))
    return kth_magnitudes(work, [k], Voters([1]))[0]


def by_sorting(values: torch.Tensor, k: int) -> float:
    return reference(values.numpy(), k)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20_000), st.floats(0, 1), st.integers(1, 60))
def test_the_kth_magnitude_is_that_of_sorting(seed: int, size: int, share: float, values: int) -> None:
    """Also where many elements are equal, as differences of 16-bit numbers are."""
    x = torch.from_numpy(np.random.default_rng(seed).integers(-values, values, size)).float()
    k = max(1, round(share * size))
    assert kth_magnitude(x, k) == by_sorting(x, k)


@pytest.mark.parametrize("kind", ["sorted", "equal", "atom", "two stretches"])
def test_the_kth_magnitude_of_tensors_that_mislead_a_sample(kind: str) -> None:
    """The sample takes every 31st element: what it sees may be far from the whole."""
    x = floats(3, 50_000)
    if kind == "sorted":
        x = x.sort().values
        x[::31] = 100.0
    elif kind == "equal":
        x = torch.full((50_000,), 0.5)
    elif kind == "atom":
        x[5000:45_000] = 0.25
    else:
        x = torch.cat([floats(4, CHUNK), 3 * floats(5, CHUNK // 2)])
    for k in (1, 17, len(x) // 3, len(x) - 1, len(x)):
        assert kth_magnitude(x, k) == by_sorting(x, k)


def test_nan_counts_as_larger_than_everything() -> None:
    """A candidate may hold it; selection must come to an end."""
    x = floats(6, 9000)
    x[:10] = math.nan
    assert kth_magnitude(x, 5) == math.inf
    assert kth_magnitude(x, 11) == by_sorting(x[10:], 1)
    x = floats(7, 9000)
    x[::5] = math.nan
    for k in range(1500, 2100, 50):
        wanted = math.inf if k <= 1800 else by_sorting(x[~x.isnan()], k - 1800)
        assert kth_magnitude(x, k) == wanted


# ---- della ---------------------------------------------------------------------------------


def test_della_keeps_the_expected_task_vector_for_small_and_large_values() -> None:
    """Each element by its own probability: mean over 600 seeds within five standard errors."""
    delta = torch.linspace(0.1, 1.0, 24).view(2, 12)
    params = {"density": 0.5, "epsilon": 0.4, "vote": False}
    draws = torch.stack([merged("della", delta, seed=s, **params) for s in range(600)])
    kept = della.probabilities(12, 0.5, 0.4) / 65536
    order = delta.abs().argsort(dim=1).argsort(dim=1)
    p = torch.from_numpy(kept)[order]
    error = 5 * delta * ((1 - p) / p / 600).sqrt()
    assert bool(((draws.mean(dim=0) - delta).abs() <= error + 1e-6).all())


def test_della_keeps_larger_elements_more_often() -> None:
    """From density − ε to density + ε by rank."""
    assert della.probabilities(3, 0.5, 0.25).tolist() == [16384, 32768, 49152]
    assert della.probabilities(1, 0.5, 0.25).tolist() == [32768]


def test_della_refuses_probabilities_beyond_one() -> None:
    with pytest.raises(ConfigError, match="leaves 0 to 1"):
        merged("della", floats(1, 2, 3), density=0.9, epsilon=0.2)


def test_della_fuses_by_the_mean_of_those_elected() -> None:
    """4 and 2 agree, −3 is outvoted: their mean is 3, as in ties. Without a vote weights stand."""
    inputs = t(4), t(2), t(-3)
    assert close(merged("della", *inputs, density=1.0), 3)
    assert close(merged("della", *inputs, density=1.0, normalise=False), 6)


def test_della_that_keeps_nothing_is_the_base() -> None:
    """Whatever epsilon: density − epsilon need not be above zero there."""
    assert not merged("della", floats(1, 6, 6), density=0.0, epsilon=0.15).any()


# ---- breadcrumbs ---------------------------------------------------------------------------


def test_breadcrumbs_drops_the_top_and_the_bottom() -> None:
    """Of ten, γ = 0.1 drops the largest, density 0.5 keeps the five below it."""
    delta = t(1, -2, 3, -4, 5, -6, 7, -8, 9, -10)
    found = merged("breadcrumbs", delta, density=0.5, gamma=0.1)
    assert close(found, 0, 0, 0, 0, 5, -6, 7, -8, 9, 0)


def test_breadcrumbs_keeps_its_density_where_gamma_leaves_no_room_for_it() -> None:
    """0.9 and 0.3 are more than 1: nine of ten stay, so the largest alone is dropped."""
    delta = t(1, -2, 3, -4, 5, -6, 7, -8, 9, -10)
    found = merged("breadcrumbs", delta, density=0.9, gamma=0.3)
    assert close(found, *delta[:9].tolist(), 0)
    found = merged("breadcrumbs", delta, density=0.5, gamma=0.9)
    assert close(found, 1, -2, 3, -4, 5, 0, 0, 0, 0, 0)


def test_breadcrumbs_at_density_one_drops_nothing() -> None:
    """As a config without a density has it: γ = 0.01 of 200 elements would be two."""
    delta = floats(2, 20, 10)
    assert torch.equal(merged("breadcrumbs", delta, density=1.0, gamma=0.01), delta)


@pytest.mark.parametrize("name", ["ties", "breadcrumbs", "sce"])
def test_a_count_of_elements_is_rounded_to_the_nearest(name: str) -> None:
    """0.29 · 100 is 28.999999999999996 in floating point: cut off, 28 would stay of 29."""
    delta = torch.arange(1.0, 101.0)
    given = {"density": 0.29, **({"gamma": 0.0} if name == "breadcrumbs" else {})}
    inputs = (delta, -3 * delta) if name == "sce" else (delta,)
    assert int((merged(name, *inputs, **given) != 0).sum()) == 29


def test_breadcrumbs_of_a_small_tensor_keeps_its_largest() -> None:
    """⌊γn⌋ = 0 drops no outlier, and never everything."""
    assert close(merged("breadcrumbs", t(1, -2, 3), density=1.0, gamma=0.01), 1, -2, 3)
    assert close(merged("breadcrumbs", t(5), density=1.0, gamma=0.01), 5)


def test_breadcrumbs_that_keeps_nothing_is_the_base() -> None:
    assert close(merged("breadcrumbs", t(1, 2), density=0.0), 0, 0)
    assert breadcrumbs.Params().density == 0.9


def test_breadcrumbs_may_vote() -> None:
    """Signs + and −: 3 outweighs −1, and is alone."""
    found = merged("breadcrumbs", t(3, 1), t(-1, 2), density=1.0, gamma=0.0, vote=True)
    assert close(found, 3, 3)


# ---- sce -----------------------------------------------------------------------------------


def test_sce_weighs_models_by_their_energy() -> None:
    """Energies 1 + 4 and 9 + 16 of 30; element 2 of opposite signs: 4 outweighs −2."""
    found = merged("sce", t(1, -2), t(3, 4))
    assert close(found, (5 * 1 + 25 * 3) / 30, 4)


def test_sce_selects_by_variance() -> None:
    """Half of all four (not of the two that differ): 1 and 3; energies are 1 + 0 and 25 + 9 of 35."""
    found = merged("sce", t(1, 1, 0, 1), t(5, 1, 3, 1), density=0.5)
    assert close(found, (1 * 1 + 34 * 5) / 35, 0, 3, 0)


def test_sce_weighs_small_task_vectors_by_their_energy_too() -> None:
    """Energies of 1 and 9 parts of 10⁻¹²: shares 0.1 and 0.9, not one half each."""
    found = merged("sce", t(1e-6, 1e-6), t(3e-6, 3e-6))
    assert close(found * 1e6, 2.8, 2.8)


def test_sce_of_nothing_is_nothing() -> None:
    assert close(merged("sce", t(0, 0), t(0, 0)), 0, 0)
    assert close(merged("sce", t(1, 2), t(3, 4), density=0.0), 0, 0)
    assert sce.variance(torch.stack([t(1), t(3)])).item() == 1.0


# ---- model stock ---------------------------------------------------------------------------


def test_model_stock_goes_as_far_as_the_angle_says() -> None:
    """Two at 60°: cos = ½, t = 2·½/(1 + ½) = ⅔ of the mean."""
    a, b = t(1, 0), t(0.5, 3**0.5 / 2)
    assert close(merged("model_stock", a, b), 0.5, 3**0.5 / 6)


def test_model_stock_by_row_has_a_ratio_for_each() -> None:
    """Row 1 is common (t = 1), row 2 at a right angle (t = 0)."""
    a, b = torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([[4.0, 0.0], [0.0, 1.0]])
    assert close(merged("model_stock", a, b, by_row=True), 3, 0, 0, 0)


def test_model_stock_at_its_pole_and_beyond_is_the_base() -> None:
    """Cos = −1 of two is the pole; three at 120° are, too; zero vectors have no angle."""
    assert close(merged("model_stock", t(1, 0), t(-1, 0)), 0, 0)
    assert model_stock.ratio(-0.5, 3) == 0.0
    assert close(merged("model_stock", t(0, 0), t(1, 0)), 0, 0)


# ---- karcher -------------------------------------------------------------------------------


def test_karcher_of_two_is_the_middle_of_the_arc() -> None:
    """Right angle, lengths 1 and 3: direction 45°, length 2."""
    assert close(merged("karcher", t(1, 0), t(0, 3)), 2**0.5, 2**0.5)


def test_karcher_with_weights_divides_the_arc() -> None:
    """A quarter of the way along 90° is 22.5°."""
    angle = math.pi / 8
    found = merged("karcher", t(1, 0), t(0, 1), weights=(0.75, 0.25))
    assert torch.allclose(found, t(math.cos(angle), math.sin(angle)), atol=1e-6)


def test_karcher_does_not_care_about_order() -> None:
    a, b, c = floats(1, 40), floats(2, 40), floats(3, 40)
    assert torch.allclose(merged("karcher", a, b, c), merged("karcher", c, a, b), atol=1e-6)


def test_karcher_leaves_zeros_out_and_takes_what_cancels_straight() -> None:
    assert close(merged("karcher", t(0, 0), t(0, 2)), 0, 2)
    assert close(merged("karcher", t(0, 0), t(0, 0)), 0, 0)
    assert close(merged("karcher", t(1, 0), t(-1, 0)), 0, 0)
    assert karcher.Params().max_iter == 100


# ---- the others ----------------------------------------------------------------------------


def test_nearswap_takes_what_is_near_and_moves_the_rest_by_t() -> None:
    """|δ| ≤ t becomes the other model's; beyond, t / |δ| of δ is ±t."""
    assert close(merged("nearswap", t(0.05, -0.05, 1, -1, 0), t=0.1), 0.05, -0.05, 0.1, -0.1, 0)


def test_passthrough_scales_one_model_and_refuses_two() -> None:
    assert close(merged("passthrough", t(1, -2), scale=0.5), 0.5, -1)
    with pytest.raises(ConfigError, match="takes one model"):
        merged("passthrough", t(1), t(2))


def test_dare_may_keep_the_sum_of_magnitudes() -> None:
    """The other rescaling: Σ|τ| stays, whatever the mask."""
    delta = floats(1, 30, 30)
    found = merged("dare", delta, drop=0.5, rescale="l1")
    assert float(found.abs().sum()) == pytest.approx(float(delta.abs().sum()), rel=1e-5)
    bare = merged("dare", delta, drop=0.5, rescale="none")
    assert bool(((bare == 0) | (bare == delta)).all())


def test_a_density_that_keeps_nothing_is_the_base_and_one_that_keeps_all_changes_nothing() -> None:
    """Not 65,536 times a few elements; della's defaults of ε do not forbid density 1."""
    delta = floats(1, 60, 60)
    assert not merged("dare", delta, drop=1.0).any()
    assert torch.equal(merged("della", delta, density=1.0, epsilon=0.15, vote=False), delta)


def test_dare_with_a_vote_is_ties_on_sparse_vectors() -> None:
    """Nothing dropped: dare_ties is ties at density 1."""
    a, b = floats(1, 100), floats(2, 100)
    found = merged("dare", a, b, drop=0.0, vote=True)
    assert torch.equal(found, merged("ties", a, b, density=1.0))


@pytest.mark.parametrize("name", method_registry.TECHNIQUES)
def test_every_technique_checks_its_parameters(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: parameter"):
        method_registry.parameters(name, {"strange": 1})


def test_a_technique_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="no merge technique 'nonsense'"):
        method_registry.module("nonsense")
