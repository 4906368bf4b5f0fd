"""QK-Clip on heads whose weights are inflated by hand."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from agent_forge.weights.training.optimisers.mugrokfast import MuGrokfast, MuGrokfastSettings
from agent_forge.weights.training.optimisers.qk_clip import AttentionError, QKClip, largest_logits
from testing.models import toy_models

IDS = torch.arange(2 * 12).reshape(2, 12) * 13 % 320
LAYER, HEAD, SIZE = 1, 1, 4


def _model(keys: int = 2, **changes: Any) -> Any:
    """Return a toy Qwen2 with four heads of size four, all weights and biases of usual size."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        config = toy_models.config(
            num_attention_heads=4, num_key_value_heads=keys, use_cache=False, **changes
        )
        model = Qwen2ForCausalLM(config)
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                torch.nn.init.normal_(parameter, std=0.3)
    return model.train()


def _rows(tensor: torch.Tensor, head: int) -> torch.Tensor:
    return tensor.detach()[head * SIZE : (head + 1) * SIZE]


def _inflate(model: Any, factor: float = 30.0) -> None:
    attention = model.model.layers[LAYER].self_attn
    _rows(attention.q_proj.weight, HEAD).mul_(factor)
    _rows(attention.q_proj.bias, HEAD).mul_(factor)


def _largest(model: Any, **inputs: Any) -> list[torch.Tensor]:
    """Return S_max of each layer in a forward pass on IDS."""
    clip = QKClip(model, 1.0)
    model(input_ids=IDS, **inputs)
    return list(clip.largest().values())


@pytest.mark.parametrize("keys", [1, 2, 4])
def test_a_head_with_inflated_weights_is_brought_to_tau(keys: int) -> None:
    """S_max is linear in W_q and b_q, so that one scaling meets τ; nothing else may change."""
    model = _model(keys)
    tau = 2 * float(torch.stack(_largest(model)).max())
    _inflate(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser = MuGrokfast(model, MuGrokfastSettings(tau=tau))
    model(input_ids=IDS).logits.sum().backward()
    inflated = _largest(model)
    assert inflated[LAYER][HEAD] > 2 * tau
    optimiser.step(0.0)
    assert optimiser.clipped == 1
    after = _largest(model)
    assert float(after[LAYER][HEAD]) == pytest.approx(tau, rel=1e-5)
    others = [head for head in range(4) if head != HEAD]
    if keys < 4:
        assert torch.equal(after[LAYER][others], inflated[LAYER][others])
    assert torch.equal(after[0], inflated[0])
    changed = {n for n, p in model.named_parameters() if not torch.equal(p.detach(), before[n])}
    parts = ["q_proj"] if keys < 4 else ["q_proj", "k_proj"]
    place = f"model.layers.{LAYER}.self_attn"
    assert changed == {f"{place}.{part}.{kind}" for part in parts for kind in ("weight", "bias")}
    for name in changed:
        now = dict(model.named_parameters())[name]
        for head in others:
            assert torch.equal(_rows(now, head), _rows(before[name], head)), name


def test_the_whole_factor_on_a_head_of_its_own_key_is_split_in_two() -> None:
    """The paper's form: √γ for W_q and √γ for W_k."""
    model = _model(4)
    _inflate(model)
    attention = model.model.layers[LAYER].self_attn
    clip = QKClip(model, 1e9)
    model(input_ids=IDS)
    clip.tau = float(clip.largest()[f"model.layers.{LAYER}.self_attn"][HEAD]) / 4
    old = [_rows(part.weight, HEAD).clone() for part in (attention.q_proj, attention.k_proj)]
    assert clip.apply() == 1
    for part, rows in zip((attention.q_proj, attention.k_proj), old, strict=True):
        torch.testing.assert_close(_rows(part.weight, HEAD), rows / 2)


def test_logits_below_tau_change_no_bit() -> None:
    """τ = 100 does not fire on healthy models."""
    model = _model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    clip = QKClip(model, 1.001 * float(torch.stack(_largest(model)).max()))
    model(input_ids=IDS)
    assert clip.apply() == 0
    assert all(torch.equal(p.detach(), before[n]) for n, p in model.named_parameters())


def test_the_largest_logit_is_that_of_plain_numpy() -> None:
    """Norm, projections, rotary embedding and mask of the first layer, in float64."""
    model = _model()
    layer, config = model.model.layers[0], model.config
    embedding = model.model.embed_tokens.weight.detach().double().numpy()
    x = embedding[IDS.numpy()]
    x /= np.sqrt((x * x).mean(-1, keepdims=True) + config.rms_norm_eps)
    angles = np.arange(12)[:, None] * 10_000.0 ** (-np.arange(0, SIZE, 2) / SIZE)

    def turned(projection: Any, head: int) -> np.ndarray:
        weight, bias = (_rows(t, head).double().numpy() for t in (projection.weight, projection.bias))
        first, second = np.split(x @ weight.T + bias, 2, axis=-1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    expected = []
    for head in range(4):
        query = turned(layer.self_attn.q_proj, head)
        key = turned(layer.self_attn.k_proj, head // 2)
        logits = query @ key.transpose(0, 2, 1) / np.sqrt(SIZE)
        expected.append(logits[:, np.tril(np.ones((12, 12), bool))].max())
    np.testing.assert_allclose(_largest(model)[0].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_padding_is_not_counted(kernel: str) -> None:
    """Places that no token sees cannot make a head explode."""
    model = _model(attn_implementation=kernel)
    mask = torch.ones_like(IDS)
    mask[:, :5] = 0
    padded = _largest(model, attention_mask=mask, position_ids=torch.arange(12)[None])
    clip = QKClip(model, 1.0)
    model(input_ids=IDS[:, 5:], position_ids=torch.arange(5, 12)[None])
    torch.testing.assert_close(padded, list(clip.largest().values()))


def test_masks_and_groups_by_hand() -> None:
    """Two query heads share a key: logits 2 × (1, 5) and 3 × (1, 5), scaled by a half."""
    query = torch.tensor([2.0, 3.0]).reshape(1, 2, 1, 1).expand(1, 2, 2, 1)
    key = torch.tensor([1.0, 5.0]).reshape(1, 1, 2, 1)
    first_only = torch.tensor([True, False]).expand(1, 1, 2, 2)
    added = torch.where(first_only, 0.0, torch.finfo(torch.float32).min)
    assert largest_logits(query, key, 0.5, None).tolist() == [5.0, 7.5]
    assert largest_logits(query, key, 0.5, first_only).tolist() == [1.0, 1.5]
    assert largest_logits(query, key, 0.5, added).tolist() == [1.0, 1.5]


def test_passes_of_one_step_count_together_and_evaluation_does_not_count() -> None:
    """Accumulated gradients belong to one step; a validation in between belongs to none."""
    model = _model()
    clip, batches = QKClip(model, 1e9), (IDS, (IDS + 7) % 320)

    def largest(*passes: torch.Tensor) -> torch.Tensor:
        for batch in passes:
            model(input_ids=batch)
        found = torch.stack(list(clip.largest().values()))
        assert clip.apply() == 0
        assert clip.largest() == {}
        return found

    alone = [largest(batch) for batch in batches]
    assert (alone[0] > alone[1]).any()
    assert (alone[0] < alone[1]).any()
    assert torch.equal(largest(*batches), torch.maximum(*alone))
    with torch.no_grad():
        model(input_ids=IDS)
    model.eval()(input_ids=IDS)
    with pytest.raises(AttentionError, match="no forward pass"):
        clip.apply()


def test_gradient_checkpointing_counts_the_same_logits() -> None:
    """The pass that is repeated in backward sees the same queries and keys."""
    model = _model()
    plain = _largest(model)
    model.activation_checkpointing_enable()
    clip = QKClip(model, 1.0)
    model(input_ids=IDS).logits.sum().backward()
    assert all(map(torch.equal, plain, clip.largest().values()))


def test_off_it_sets_no_hook_and_dropped_it_leaves_none() -> None:
    """A clip that is off costs nothing, and a model outlives its optimisers."""
    model = _model()

    def hooks() -> int:
        return sum(len(m._forward_hooks) for m in model.modules())

    optimiser = MuGrokfast(model, MuGrokfastSettings(tau=None))
    assert hooks() == 0
    optimiser = MuGrokfast(model, MuGrokfastSettings())
    assert hooks() == 9
    del optimiser
    gc.collect()
    assert hooks() == 0


def test_models_that_cannot_be_clipped_are_refused() -> None:
    """No attention, norms on queries and keys, frozen projections, masks of other kernels."""
    with pytest.raises(AttentionError, match="q_proj and k_proj"):
        QKClip(torch.nn.Linear(2, 2), 1.0)
    plain = toy_models.config().to_dict()
    named = ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size")
    config = Qwen3Config(
        **{name: plain[name] for name in named},
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    with pytest.raises(AttentionError, match="normalises"):
        QKClip(Qwen3ForCausalLM(config), 1.0)
    model = _model()
    model.model.layers[0].self_attn.q_proj.weight.requires_grad_(False)
    with pytest.raises(AttentionError, match="trainable"):
        QKClip(model, 1.0)
