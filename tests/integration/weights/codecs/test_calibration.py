"""Collection of grams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from agent_forge.runs.errors import ConfigError, NotFiniteError
from agent_forge.weights.codecs.feedback.calibration import grams, token_counts
from testing.models.toys import Toys


class Bare(torch.nn.Module):
    """An embedding of two rows, (1, 0) and (1, 2), and two layers that read it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding.from_pretrained(torch.tensor([[1.0, 0.0], [1.0, 2.0]]))
        self.first, self.second = (torch.nn.Linear(2, 3, bias=False) for _ in range(2))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        found = self.embedding(input_ids)
        return self.first(found) + self.second(found)


def test_the_gram_of_three_tokens_by_hand() -> None:
    """Tokens 0, 1, 1 in two windows: (1, 0)(1, 0)ᵀ + 2 (1, 2)(1, 2)ᵀ over three."""
    model = Bare().train()
    found = grams(model, [np.array([0, 1]), np.array([1])])
    expected = torch.tensor([[3.0, 4.0], [4.0, 8.0]]).double() / 3
    assert sorted(found) == ["first.weight", "second.weight"]
    assert all(torch.allclose(gram, expected) for gram in found.values())
    batch = grams(model, [np.array([[0, 1], [1, 0]]), np.array([1, 1])])
    assert all(torch.allclose(gram, expected) for gram in batch.values())
    assert model.training
    assert not model.first._forward_pre_hooks


def test_of_a_language_model(toys: Toys) -> None:
    """All of its matrices, the tied head under the embedding's name, twice the same bits."""
    model: Any = AutoModelForCausalLM.from_pretrained(toys.base)
    windows = [np.arange(1, 30), np.arange(40, 60)]
    found = grams(model, windows)
    assert set(found) == {n for n, p in model.named_parameters() if p.dim() == 2}
    states = [
        model(torch.from_numpy(w)[None], output_hidden_states=True).hidden_states[-1][0]
        for w in windows
    ]
    rows = torch.cat(states).detach().double()
    head = found["model.embed_tokens.weight"]
    assert torch.allclose(head, rows.T @ rows / len(rows), rtol=1e-5)
    layers = "model.layers.0.self_attn"
    assert torch.equal(found[f"{layers}.q_proj.weight"], found[f"{layers}.k_proj.weight"])
    assert not torch.equal(found[f"{layers}.q_proj.weight"], found[f"{layers}.o_proj.weight"])
    again = grams(model, windows, [f"{layers}.o_proj.weight"])
    assert list(again) == [f"{layers}.o_proj.weight"]
    assert torch.equal(again[f"{layers}.o_proj.weight"], found[f"{layers}.o_proj.weight"])


def test_what_cannot_be_calibrated_is_said() -> None:
    """No windows, a name that no layer has, a model that computes NaN."""
    with pytest.raises(ConfigError, match="no window"):
        grams(Bare(), [])
    model = Bare()
    with pytest.raises(ConfigError, match=r"third\.weight"):
        grams(model, [np.array([0])], ["first.weight", "third.weight"])
    assert not model.first._forward_pre_hooks
    torch.nn.init.constant_(model.embedding.weight, float("nan"))
    with pytest.raises(NotFiniteError, match=r"first\.weight"):
        grams(model, [np.array([0])])


def test_tokens_are_counted_from_one() -> None:
    """A token that the text lacks still counts a little; an id beyond the rows is an error."""
    found = token_counts([np.array([0, 2]), np.array([2])], 4)
    assert found.tolist() == [2.0, 1.0, 3.0, 1.0]
    assert token_counts([], 2).tolist() == [1.0, 1.0]
    with pytest.raises(ConfigError, match="0 to 1"):
        token_counts([np.array([2])], 2)
