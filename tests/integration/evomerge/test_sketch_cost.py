"""What is computed from tensors alone: an architecture's cost, and sketches of task vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import Qwen2ForCausalLM

from agent_forge.evomerge.merging import sketch
from agent_forge.evomerge.search.diversity import decode, distance
from agent_forge.weights.cost import cost
from testing.models import toy_models, toy_tensors


@pytest.mark.parametrize("tied", [True, False])
def test_cost_is_the_hand_count(tied: bool):
    """The tiny Qwen2: 16 wide, 3 blocks, 2 heads of 8, 1 key-value head, 32 inner, 320 tokens.

    A block's matrices: q 16·16, k 8·16, v 8·16, o 16·16 = 768; gate, up, down 3·32·16 = 1536;
    2304. Biases q 16, k 8, v 8 and two norms of 16: 64. Final norm 16.
    Products: 3·2304 + head 320·16 = 12,032 whether tied or not.
    Operations: 2·12,032 + attention 4·3 blocks·10 tokens·2 heads·8 = 24,064 + 1,920 = 25,984.
    Stored: 3·2368 + 16 + 5120 = 12,240, and 5,120 more where untied.
    Bytes at 4 an element: stored + cache 2·3·10·1·8 = 480 + widest 320.
    """
    config = toy_models.config(tie_word_embeddings=tied)
    with torch.device("meta"):
        module = Qwen2ForCausalLM(config)
    shapes = {n: tuple(p.shape) for n, p in module.named_parameters()}
    assert ("lm_head.weight" in shapes) is not tied
    found = cost(shapes, 4, config, 10)
    assert found.flops_per_token == 25_984
    assert found.bytes == 4 * (12_240 + (0 if tied else 5_120) + 480 + 320)


def test_sketched_distances_are_close_to_the_true_ones():
    """One pair errs by √(2/256) = 9 %; the mean of 12 pairs must be within 30 %, and is far closer."""
    base = toy_tensors.weights("origin", SKETCHED)
    found = []
    for number in range(12):
        a, b = (toy_tensors.weights(f"{number}-{x}", SKETCHED) for x in "ab")
        estimated = distance(sketch.sketch(a, base), sketch.sketch(b, base))
        found.append(estimated / toy_tensors.distance(a, b))
    assert np.mean(found) == pytest.approx(1.0, abs=0.3)
    assert all(0.6 < ratio < 1.4 for ratio in found)


#: One tensor is longer than a block of the sketch, none is a multiple of a bucket count.
SKETCHED = {"a": (70, 1001), "b": (333,), "c": (1,)}


def test_a_sketch_does_not_depend_on_threads_or_order():
    """It is recorded in the log and decides about reseeding."""
    base, model = toy_tensors.weights("origin", SKETCHED), toy_tensors.weights("model", SKETCHED)
    wanted = sketch.sketch(model, base)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert sketch.sketch(model, base) == wanted
    finally:
        torch.set_num_threads(before)


def test_a_sketch_is_linear_and_zero_for_the_base():
    """Twice the task vector, twice the sketch; the base's own is nothing."""
    base, model = toy_tensors.weights("origin", SKETCHED), toy_tensors.weights("model", SKETCHED)
    assert not decode(sketch.sketch(base, base)).any()
    doubled = {n: base[n] + 2 * (model[n] - base[n]) for n in base}
    once, twice = decode(sketch.sketch(model, base)), decode(sketch.sketch(doubled, base))
    assert np.allclose(twice, 2 * once, atol=1e-2)
    assert len(once) == sketch.SIZE


def test_integers_are_not_sketched():
    """Position ids are no weights."""
    base = {"a": torch.zeros(4), "ids": torch.arange(4)}
    model = {"a": torch.ones(4), "ids": torch.arange(4) + 100}
    assert sketch.sketch(model, base) == sketch.sketch({**model, "ids": base["ids"]}, base)


def test_blocks_of_a_long_tensor_do_not_add_up_as_one():
    """Four equal blocks: the mean over 30 names of ‖sketch‖²/‖x‖² is 1; without row signs it is 4.

    (Σ of 4 signs)²/4 has mean 1 and variance (3·16 − 2·4)/16 − 1 = 1.5: 5·√(1.5/30) = 1.12.
    """
    flat = torch.ones(4 * sketch.BLOCK)
    ratios = []
    for number in range(30):
        found = sketch._tensor_sketch(f"tensor-{number}", flat)
        ratios.append(float(found @ found) / flat.numel())
    assert abs(np.mean(ratios) - 1.0) < 1.12
