"""Frozen models: passes in bfloat16 with the bits of autocast, and memory that is held once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.models.low_rank import UP, LowRankAdapters
from testing.models import toy_training

TOKENS = torch.arange(60).reshape(2, 30) % 64


def adapted(as_autocast: bool) -> Any:
    """The toy, frozen, with adapters that change what it predicts; without its own `forward`s if so."""
    module: Any = modules.build(toy_training.model(), frozen=True)
    if as_autocast:
        for layer in module.modules():
            layer.__dict__.pop("forward", None)
    LowRankAdapters(module, 4, 8.0, (), (0, "toy"))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith(UP):
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module


def passed(module: Any) -> tuple[list[torch.Tensor], int]:
    """Logits and gradients of a pass in bfloat16, and the bytes that it keeps besides parameters."""
    places: dict[int, int] = {}
    parameters = {p.untyped_storage().data_ptr() for p in module.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            places[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        with torch.autocast("cpu", torch.bfloat16):
            logits = module(input_ids=TOKENS).logits
        logits.float().square().mean().backward()
    return [logits, *(p.grad for p in module.parameters() if p.requires_grad)], sum(places.values())


def test_a_pass_in_bfloat16_has_the_bits_of_autocast() -> None:
    """Logits and gradients; in float32 the matrices themselves are read."""
    ours, plain = adapted(as_autocast=False), adapted(as_autocast=True)
    for mine, autocast in zip(passed(ours)[0], passed(plain)[0], strict=True):
        assert torch.equal(mine, autocast)
    with torch.no_grad():
        assert torch.equal(ours(input_ids=TOKENS).logits, plain(input_ids=TOKENS).logits)


def test_a_second_pass_keeps_no_further_copies_of_matrices() -> None:
    """Autocast casts each matrix again, in new memory."""
    module = adapted(as_autocast=False)
    passed(module)
    weight = module.model.layers[0].mlp.up_proj.weight
    half = modules._HALVES[weight]
    assert (half.dtype, half.shape) == (torch.bfloat16, weight.shape)
    with torch.autocast("cpu", torch.bfloat16):
        module(input_ids=TOKENS)
    assert modules._HALVES[weight] is half


def test_models_of_the_same_weights_share_their_memory() -> None:
    """A student and its teacher; the teacher, which has no gradients, keeps no copies of matrices."""
    model = toy_training.model()
    teacher, student = (modules.build(model, frozen=True) for _ in range(2))
    for of_teacher, of_student in zip(teacher.parameters(), student.parameters(), strict=True):
        assert of_teacher.data_ptr() == of_student.data_ptr()
    weight = teacher.get_parameter("model.layers.0.mlp.up_proj.weight")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        teacher(input_ids=TOKENS)
    assert weight not in modules._HALVES


def test_a_module_of_another_dtype_leaves_the_others_and_the_weights_alone() -> None:
    """They share memory, not parameters, which a module casts in place."""
    model = toy_training.model()
    other = modules.build(model, frozen=True)
    double = modules.build(model, frozen=True).double()
    assert {p.dtype for p in other.parameters()} == {torch.float32}
    with torch.autocast("cpu", torch.bfloat16):
        logits = double(input_ids=TOKENS).logits
    assert logits.dtype == torch.float64
    assert torch.allclose(logits.float(), other(input_ids=TOKENS).logits, atol=1e-5)
    assert {tensor.dtype for tensor in model.weights.values()} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_that_cannot_be_used_as_they_are_have_one_copy(dtype: torch.dtype) -> None:
    """Other dtypes, and memory that does not begin where torch's does; the given tensors stay."""
    model = toy_training.model()
    other = {}
    for name, tensor in model.weights.items():
        shifted = torch.empty(tensor.numel() + 1, dtype=dtype)[1:].view(tensor.shape)
        other[name] = shifted.copy_(tensor)
    first, second = (modules.build(Tensors(model.config, other), frozen=True) for _ in range(2))
    for (name, mine), its in zip(first.named_parameters(), second.parameters(), strict=True):
        assert mine.data_ptr() == its.data_ptr()
        assert mine.dtype == torch.float32
        assert mine.data_ptr() % modules.ALIGNED == 0
        assert mine.data_ptr() != other[name].data_ptr()
        assert torch.equal(mine, other[name].float())
