"""The techniques against values derived by hand, and the edges where other tools break."""

from __future__ import annotations

import math

import pytest
import torch

from agent_forge.evomerge.merging.kernels import inner_loops
from agent_forge.evomerge.merging.kernels.chunks import CHUNK
from agent_forge.evomerge.merging.methods import dare, linear, slerp, task_arithmetic, ties
from agent_forge.runs.errors import ConfigError
from testing.models.toy_tensors import close, t

# ---- linear --------------------------------------------------------------------------------


def test_linear_is_the_weighted_mean():
    """(1·1 + 3·3)/4 = 2.5 and (1·2 + 3·6)/4 = 5."""
    assert close(linear.merge([t(1, 2), t(3, 6)], (1.0, 3.0)), 2.5, 5.0)


def test_linear_without_weights_is_the_plain_mean():
    """1/n each, not 0.33: (1 + 2 + 6)/3 = 3."""
    assert close(linear.merge([t(1), t(2), t(6)]), 3.0)


def test_linear_takes_negative_weights_while_their_sum_is_not_zero():
    """(2·1 − 1·3)/1 = −1: extrapolation is meant to work."""
    assert close(linear.merge([t(1), t(3)], (2.0, -1.0)), -1.0)


@pytest.mark.parametrize("weights", [(1.0, -1.0), (0.0, 0.0), (1e-9, 0.0)])
def test_linear_refuses_weights_that_add_up_to_zero(weights: tuple[float, float]):
    """Dividing by nothing would fill a model with Inf."""
    with pytest.raises(ConfigError, match="add up to"):
        linear.merge([t(1), t(2)], weights)


def test_linear_refuses_a_wrong_number_of_weights():
    """Silently dropping a model would be worse than an error."""
    with pytest.raises(ConfigError, match="2 weights for 3 models"):
        linear.merge([t(1), t(2), t(3)], (0.5, 0.5))


def test_linear_leaves_its_inputs_alone():
    """Inputs are memory-mapped files: writing to them is a crash or a corrupted source."""
    a, b = t(1, 2), t(3, 4)
    linear.merge([a, b], (0.3, 0.7))
    assert a.tolist() == [1, 2]
    assert b.tolist() == [3, 4]


# ---- task arithmetic -----------------------------------------------------------------------


def test_task_arithmetic_is_the_scaled_sum():
    """½(1·1 + 2·3) = 3.5 and ½(1·2 + 2·(−1)) = 0."""
    params = task_arithmetic.Params(weights=(1.0, 2.0), scale=0.5)
    assert close(task_arithmetic.merge([t(1, 2), t(3, -1)], params), 3.5, 0.0)


def test_task_arithmetic_normalised_at_one_is_the_mean():
    """The definition's only link to linear."""
    params = task_arithmetic.Params(normalise=True)
    assert close(task_arithmetic.merge([t(1), t(2), t(6)], params), 3.0)


def test_task_arithmetic_by_default_is_the_plain_sum():
    """1 + 2 + 6 = 9: not normalised unless asked."""
    assert close(task_arithmetic.merge([t(1), t(2), t(6)], task_arithmetic.Params()), 9.0)


def test_task_arithmetic_refuses_what_has_no_meaning():
    """Too few weights, or normalising by a zero sum."""
    with pytest.raises(ConfigError, match="1 weights for 2 models"):
        task_arithmetic.merge([t(1), t(2)], task_arithmetic.Params(weights=(1.0,)))
    params = task_arithmetic.Params(weights=(1.0, -1.0), normalise=True)
    with pytest.raises(ConfigError, match="add up to"):
        task_arithmetic.merge([t(1), t(2)], params)


def slerp_pair(a: torch.Tensor, b: torch.Tensor, where: float) -> torch.Tensor:
    """Slerp of two vectors."""
    return slerp.merge([a, b], (where,))


# ---- slerp ---------------------------------------------------------------------------------


def test_slerp_of_a_right_angle():
    """θ = 90°: half-way both factors are sin 45°/sin 90° = √½; at ⅓ they are sin 60° and sin 30°."""
    assert close(slerp_pair(t(1, 0), t(0, 1), 0.5), math.sqrt(0.5), math.sqrt(0.5))
    assert close(slerp_pair(t(1, 0), t(0, 1), 1 / 3), math.sqrt(3) / 2, 0.5)


def test_slerp_of_sixty_degrees():
    """Half-way between 0° and 60° on the unit circle is 30°: (√3/2, ½)."""
    assert close(slerp_pair(t(1, 0), t(0.5, math.sqrt(3) / 2), 0.5), math.sqrt(3) / 2, 0.5)


def test_slerp_interpolates_whole_vectors_by_the_angle_of_their_directions():
    """Lengths 2 and 4 at 90°, t = ½: √½·2 = √2 and √½·4 = 2√2."""
    assert close(slerp_pair(t(2, 0), t(0, 4), 0.5), math.sqrt(2), 2 * math.sqrt(2))


def test_slerp_starts_and_ends_at_its_inputs_exactly():
    """Sin θ/sin θ is 1 and sin 0 is 0, without rounding."""
    a, b = t(0.3, -1.7, 2.9), t(1.1, 0.2, -0.4)
    assert torch.equal(slerp_pair(a, b, 0.0), a)
    assert torch.equal(slerp_pair(a, b, 1.0), b)


@pytest.mark.parametrize("where", [0.1, 0.5, 0.8])
def test_slerp_keeps_the_norm_of_inputs_of_one_norm(where: float):
    """What it is for; lerp at 90° would give √(0.1² + 0.9²) and the like, at most 0.91 of it."""
    a, b = t(3, 0, 4), t(4, 0, -3)  # ⟨a, b⟩ = 12 − 12 = 0, both norms 5
    assert float(slerp_pair(a, b, where).norm()) == pytest.approx(5.0, rel=1e-6)


def test_slerp_of_parallel_vectors_is_the_straight_line():
    """Sin θ is 0 there: ¾·2 + ¼·6 = 3."""
    assert close(slerp_pair(t(2, 2), t(6, 6), 0.25), 3.0, 3.0)


def test_slerp_of_opposite_vectors_is_the_straight_line():
    """No great circle is the right one: ¾·v − ¼·v = ½·v, never NaN."""
    assert close(slerp_pair(t(2, -4), t(-2, 4), 0.25), 1.0, -2.0)


def test_slerp_with_a_zero_vector_is_the_straight_line():
    """A zero task vector has no direction: ¾·0 + ¼·8 = 2."""
    assert close(slerp_pair(t(0, 0), t(8, 4), 0.25), 2.0, 1.0)
    assert close(slerp_pair(t(8, 4), t(0, 0), 0.25), 6.0, 3.0)
    assert close(slerp_pair(t(0, 0), t(0, 0), 0.25), 0.0, 0.0)


def test_slerp_changes_to_the_straight_line_at_its_threshold():
    """|cos| 0.9994 still follows the arc, 0.9996 does not: the factors tell which was taken."""
    for cosine, straight in ((0.9994, False), (-0.9994, False), (0.9996, True), (-0.9996, True)):
        assert (slerp.coefficients(1.0, 1.0, cosine, 0.3) == (0.7, 0.3)) is straight


def test_slerp_survives_a_cosine_beyond_one():
    """Rounding can give ⟨a, b⟩ > ‖a‖‖b‖; arccos of that is NaN without the clamp."""
    assert slerp.coefficients(1.0, 1.0, 1.0 + 1e-12, 0.5) == (0.5, 0.5)


def test_slerp_of_vectors_whose_squares_leave_float32():
    """10⁻³⁰ squared is below float32; the dot products are float64, so the arc is found."""
    assert close(slerp_pair(t(1e-30, 0), t(0, 1e-30), 0.5) * 1e30, math.sqrt(0.5), math.sqrt(0.5))


def test_slerp_of_three_folds_with_a_half_and_a_third():
    """(e₁ + e₂)/√2, then 90° to e₃ at ⅓: (√3/2/√2, √3/2/√2, ½) = (√⅜, √⅜, ½)."""
    merged = slerp.merge([t(1, 0, 0), t(0, 1, 0), t(0, 0, 1)])
    assert close(merged, math.sqrt(3 / 8), math.sqrt(3 / 8), 0.5)


def test_slerp_takes_ts_and_refuses_a_wrong_number_of_them():
    """Ts are genes: n − 1 of them, each used."""
    vectors = [t(1, 0, 0), t(0, 1, 0), t(0, 0, 1)]
    assert close(slerp.merge(vectors, (1.0, 1.0)), 0, 0, 1)
    assert close(slerp.merge(vectors, (0.0, 0.0)), 1, 0, 0)
    with pytest.raises(ConfigError, match="takes 2 values of t"):
        slerp.merge(vectors, (0.5,))


def test_slerp_depends_on_the_order_of_its_inputs():
    """Stated in the specification; colinear lerps fold to the mean, arcs do not."""
    a, b, c = t(1, 0), t(0, 1), t(-1, 0.5)
    assert not torch.allclose(slerp.merge([a, b, c]), slerp.merge([c, b, a]), atol=1e-3)


def test_dot_products_are_whole_beyond_one_lane():
    """Sums go in lanes of 32 with a rest: Σ 1·2 over n is 2n, at, below and above."""
    for n in (1, 31, 32, 33, 1000):
        found = inner_loops.gram(torch.stack([torch.ones(n), torch.full((n,), 2.0)]))
        assert found.tolist() == [[n, 2 * n], [2 * n, 4 * n]]


def test_slerp_of_more_than_one_stretch_sees_the_whole_tensor():
    """Two vectors at a right angle in the whole, each constant in a half: 45° gives √½ of both."""
    half = torch.ones(CHUNK)
    a, b = torch.cat([half, 0 * half]), torch.cat([0 * half, half])
    merged = slerp.merge([a, b], (0.5,))
    assert torch.allclose(merged, torch.full((2 * CHUNK,), 0.5**0.5))


# ---- ties ----------------------------------------------------------------------------------


def test_ties_trims_elects_and_merges():
    """Density 0.4 of 5 keeps 2: τ₁ → (4, −3, 0, 0, 0), τ₂ → (0, −4, 3, 0, 0).

    Votes (4, −7, 3, 0, 0); merged (4, (−3 − 4)/2, 3, 0, 0): zeros do not take part in a mean.
    """
    merged = ties.merge([t(4, -3, 0.5, 1, 0), t(-2, -4, 3, 0.2, 0)], 0.4)
    assert close(merged, 4, -3.5, 3, 0, 0)


def test_ties_averages_only_those_who_agree_with_the_elected_sign():
    """Column 1: 4 − 3 − 2 = −1, so (−3 − 2)/2. Column 2: 1 + 1 − 5 = −3, so −5 alone."""
    assert close(ties.merge([t(4, 1), t(-3, 1), t(-2, -5)], 1.0), -2.5, -5.0)


def test_ties_weighs_votes_and_means():
    """Weights 2, 1, 1. Column 1: 8 − 3 − 2 > 0 → 4. Column 2: 2 + 1 + 5 → (2·1 + 1 + 5)/4 = 2."""
    assert close(ties.merge([t(4, 1), t(-3, 1), t(-2, 5)], 1.0, (2, 1, 1)), 4.0, 2.0)


def test_ties_counts_a_tied_vote_as_plus():
    """2 − 2 = 0 → +, so that half of the elements are not thrown away."""
    assert close(ties.merge([t(2), t(-2)], 1.0), 2.0)


def test_ties_with_a_weight_of_zero_ignores_that_model():
    """Its elements neither vote nor count in the divisor."""
    assert close(ties.merge([t(4, -1), t(100, 100)], 1.0, (1.0, 0.0)), 4.0, -1.0)


def test_ties_keeps_every_element_equal_to_the_kth():
    """K = ½·4 = 2, the second largest is 1 and three elements are 1: all stay."""
    assert close(ties.merge([t(3, 1, -1, 1)], 0.5), 3, 1, -1, 1)
    assert close(ties.merge([t(3, 1, -1, 1)], 0.25), 3, 0, 0, 0)


def test_ties_at_density_one_keeps_all_and_at_zero_nothing():
    """Zero kept means the base, not an assertion."""
    delta = t(3, -1, 0.1)
    assert torch.equal(ties.merge([delta], 1.0), delta)
    assert close(ties.merge([delta], 0.0), 0, 0, 0)
    assert close(ties.merge([delta, delta], 0.0), 0, 0, 0)


@pytest.mark.parametrize(("density", "kept"), [(0.2, 0.0), (0.6, 5.0), (1.0, 5.0)])
def test_ties_of_one_element_follows_the_rounding_of_k(density: float, kept: float):
    """K = round(density · 1): 0.2 → 0, 0.6 → 1, 1 → 1."""
    assert close(ties.merge([t(5), t(5)], density), kept)


def test_ties_of_zero_task_vectors_is_zero():
    """All magnitudes tie at 0, nobody votes, and no divisor is 0."""
    assert close(ties.merge([t(0, 0, 0), t(0, 0, 0)], 0.4), 0, 0, 0)


def test_ties_of_identical_inputs_is_the_trimmed_input():
    """Their mean is themselves."""
    delta = t(4, -3, 0.5, 1, 0)
    assert close(ties.merge([delta, delta, delta], 0.4), 4, -3, 0, 0, 0)


def test_ties_takes_a_negative_weight_as_that_of_the_opposite_task_vector():
    """Votes 1·4 − 2·3 = −2 elect −; −2·3 alone agrees; over |−2| it is −3. Never a small divisor."""
    assert close(ties.merge([t(4), t(3)], 1.0, (1.0, -2.0)), -3.0)
    assert close(ties.merge([t(5), t(1)], 1.0, (1.0, -0.999999)), 5.0)


def test_ties_refuses_missing_weights_and_impossible_densities():
    """One weight a model; a density is a share."""
    with pytest.raises(ConfigError, match="1 weights for 2 models"):
        ties.merge([t(1), t(2)], 1.0, (1.0,))
    with pytest.raises(ConfigError, match="share from 0 to 1"):
        ties.merge([t(1), t(2)], 1.5)


# ---- dare ----------------------------------------------------------------------------------


def test_dare_drops_or_rescales_every_element():
    """P = ½ is exact in 16 bits: each element is 0 or twice itself, and both happen in 64."""
    delta = torch.arange(1.0, 65.0)
    ratio = dare.merge(delta, 0.5, 1, "w", 0) / delta
    assert set(ratio.tolist()) == {0.0, 2.0}


def test_dare_keeps_the_expected_task_vector():
    """Mean of 400 seeds at p = ½: standard error √(p/(1−p)/400) = 0.05 a unit; 5 of them allowed."""
    delta = torch.linspace(-1.0, 1.0, 48)
    draws = torch.stack([dare.merge(delta, 0.5, seed, "w", 0) for seed in range(400)])
    error = (draws.mean(dim=0) - delta).abs()
    assert bool((error <= 5 * 0.05 * delta.abs() + 1e-6).all())


def test_dare_drops_the_share_that_it_was_told():
    """Of 40,000 elements at p = 0.9, 36,000 ± 5·√(40,000·0.9·0.1) = 300 are dropped."""
    found = dare.merge(torch.ones(40_000), 0.9, 3, "w", 0)
    assert abs(int((found == 0).sum()) - 36_000) <= 300
    # p is round(0.9 · 65536)/65536 = 58982/65536, and the rescaling uses that p.
    assert found.max().item() == pytest.approx(65_536 / (65_536 - 58_982), rel=1e-6)


def test_dare_that_drops_nothing_is_the_identity():
    """And a new tensor: the caller writes to it."""
    delta = t(1, -2, 3)
    found = dare.merge(delta, 0.0, 1, "w", 0)
    assert torch.equal(found, delta)
    assert found.data_ptr() != delta.data_ptr()


def test_dare_masks_depend_on_the_key_alone():
    """Same key, same mask; another seed, tensor or source, another mask."""
    ones = torch.ones(256)
    found = dare.merge(ones, 0.5, 1, "w", 0)
    assert torch.equal(found, dare.merge(ones, 0.5, 1, "w", 0))
    for key in ((2, "w", 0), (1, "v", 0), (1, "w", 1)):
        assert not torch.equal(found, dare.merge(ones, 0.5, *key))


def test_dare_just_below_one_stays_finite():
    """P rounds to 65535/65536 at most: kept elements grow 65,536 times, never to Inf."""
    found = dare.merge(torch.ones(200_000), 0.9999999, 1, "w", 0)
    assert set(found.tolist()) == {0.0, 65_536.0}


def test_dare_of_zero_is_zero_and_keeps_the_shape():
    """Zero task vectors and tensors of one element are ordinary."""
    assert torch.equal(dare.merge(torch.zeros(3, 5), 0.5, 1, "w", 0), torch.zeros(3, 5))
    assert dare.merge(t(3), 0.5, 1, "w", 0).item() in (0.0, 6.0)
