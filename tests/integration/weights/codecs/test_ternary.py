"""Ternary weights, and weights that are not coded."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceError
from agent_forge.weights import codecs
from testing.models.layers import gram, matrix, weighted_error


def test_a_weight_beyond_half_of_the_scale_is_the_scale() -> None:
    """By hand: the mean of 4, 1, 3, 0 is 2, so beyond 1 counts, and 1 itself does not."""
    weights = torch.tensor([[4.0, -1.0], [-3.0, 0.0]])
    coded = codecs.encode("ternary@1", weights, {"scale": "mean"})
    assert codecs.decode("ternary@1", coded).tolist() == [[2.0, 0.0], [-2.0, 0.0]]
    assert coded.parts["trits"].tolist() == [2 + 3 + 0 + 27 + 81]


def test_ternary_weights_come_back_exactly() -> None:
    """A model that was trained to be ternary loses nothing: least squares finds its scale."""
    trits = torch.tensor([[1.0, 0.0, -1.0, 1.0], [0.0, 0.0, 1.0, -1.0]]) * 0.0625
    coded = codecs.encode("ternary@1", trits, {"scale": "least-squares"})
    assert torch.equal(codecs.decode("ternary@1", coded), trits)


@pytest.mark.parametrize("group", [0, 7, 64])
def test_five_weights_take_a_byte(group: int) -> None:
    """1.6 bits and the scales; decoding is exact to what was encoded, any shape."""
    weights, h = matrix(9, 41), gram(41)
    for feedback in (False, True):
        params = {"group": group, "feedback": feedback}
        coded, again = (codecs.encode("ternary@1", weights, params, h) for _ in range(2))
        assert all(torch.equal(part, again.parts[n]) for n, part in coded.parts.items())
        assert coded.parts["trits"].numel() == -(-9 * 41 // 5)
        found = codecs.decode("ternary@1", coded)
        scales = coded.parts["scale"].float() * 2.0 ** coded.header["exponent"]
        assert scales.shape == ((1,) if not group else (9, -(-41 // min(group, 41))))
        assert set(found.abs().unique().tolist()) <= {0.0, *scales.flatten().tolist()}


def test_least_squares_is_the_best_scale_and_feedback_the_better_layer() -> None:
    """Three levels of a Gaussian leave .4359 of its norm at least (Max 1960, table I)."""
    weights, h = matrix(64, 128), gram(128)
    errors = {}
    for scale in ("mean", "least-squares", "rms"):
        for feedback in (False, True):
            coded = codecs.encode("ternary@1", weights, {"scale": scale, "feedback": feedback}, h)
            errors[scale, feedback] = codecs.decode("ternary@1", coded) - weights
    relative = {key: float(e.norm() / weights.norm()) for key, e in errors.items()}
    assert 0.42 < relative["least-squares", False] < 0.45 < relative["mean", False]
    assert weighted_error(errors["rms", True], h) < 0.7 * weighted_error(errors["rms", False], h)


def test_zeros_and_weights_beyond_16_bits() -> None:
    """A scale of zero has no sign; sizes that float16 does not have come back."""
    assert not codecs.decode("ternary@1", codecs.encode("ternary@1", torch.zeros(2, 3), {})).any()
    large = codecs.encode("ternary@1", torch.full((2, 2), 1e36), {"scale": "mean"})
    assert codecs.decode("ternary@1", large).mean() == pytest.approx(1e36, rel=1e-3)
    with pytest.raises(ConfigError, match="too large for float16"):
        codecs.encode("plain@1", torch.full((2, 2), 1e6), {"dtype": "float16"})


def test_plain_weights_are_rounded_to_their_dtype_and_nothing_else() -> None:
    """float32 is the same bits."""
    weights = matrix(3, 5)
    for dtype, size in (("float32", 4), ("float16", 2), ("bfloat16", 2)):
        coded = codecs.encode("plain@1", weights, {"dtype": dtype})
        assert coded.parts["weights"].element_size() == size
        expected = weights.to(getattr(torch, dtype)).float()
        assert torch.equal(codecs.decode("plain@1", coded), expected)
    with pytest.raises(NotFiniteError):
        codecs.encode("plain@1", weights / 0.0, {})


def test_damaged_parts_are_refused() -> None:
    """Both codecs check shape and dtype of what they read."""
    coded = codecs.encode("ternary@1", matrix(4, 8), {"group": 4})
    parts = coded.parts
    for wrong in (
        replace(coded, parts={}),
        replace(coded, parts={**parts, "trits": parts["trits"][1:]}),
        replace(coded, parts={**parts, "scale": parts["scale"] / 0}),
        replace(coded, header={}),
        replace(coded, header={"exponent": 0, "group": 3}),
    ):
        with pytest.raises(SourceError):
            codecs.decode("ternary@1", wrong)
    plain = codecs.encode("plain@1", matrix(4, 8), {})
    for weights in (plain.parts["weights"].double(), plain.parts["weights"][1:]):
        with pytest.raises(SourceError):
            codecs.decode("plain@1", replace(plain, parts={"weights": weights}))
