"""The neural memory beside the public one of `titans-pytorch` (extra `titans`): shapes and causality.

Its memory has a network, normalisations and a chunk rule of its own, so that numbers differ; both must
answer every token by a vector of its size, from tokens before it and never from later ones.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from agent_forge.weights.architectures.titans_mag.configuration_titans_mag import TitansMagConfig
from agent_forge.weights.architectures.titans_mag.memory_titans_mag import NeuralMemory

WIDTH, CHUNK, TOKENS = 16, 4, 14


def theirs() -> Any:
    """The public memory, with linear weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        public = pytest.importorskip("titans_pytorch", exc_type=ImportError)
        model = public.MemoryMLP(dim=WIDTH, depth=1)
        memory = public.NeuralMemory(dim=WIDTH, chunk_size=CHUNK, model=model)
    return lambda x: memory(x)[0]


def ours() -> Any:
    """Our memory, its heads side by side."""
    config = TitansMagConfig(
        hidden_size=WIDTH, num_attention_heads=2, num_key_value_heads=1, memory_chunk=CHUNK
    )
    memory = NeuralMemory(config)
    for name, parameter in memory.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm" in name), std=0.3)
    return lambda x: memory(x, None, None)[0].transpose(1, 2).flatten(2)


@pytest.mark.parametrize("make", [ours, theirs])
def test_a_memory_answers_every_token_from_those_before(make: Any) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory = make()
        x = torch.randn(2, TOKENS, WIDTH, requires_grad=True)
        found = memory(x)
        assert found.shape == x.shape
        for at in range(TOKENS):
            (slope,) = torch.autograd.grad(found[0, at].sum(), x, retain_graph=True)
            assert not slope[0, at + 1 :].any()
            assert not slope[1].any()
        (slope,) = torch.autograd.grad(found[0, -1].sum(), x)
        assert slope[0, 0].any()  # two chunks and more before it
