"""MuGrokfast on toy models: its groups, its bits, its state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch.nn import functional as F
from transformers import Qwen2ForCausalLM

from agent_forge.runs import keys
from agent_forge.weights.training.optimisers.mugrokfast import (
    PRESETS,
    MuGrokfast,
    MuGrokfastSettings,
    OptimiserStateError,
    split,
)
from testing.models import toy_models

PLAIN = MuGrokfastSettings(grokfast_lambda=0, tau=None)


def _model(**changes: Any) -> Any:
    """Return a toy Qwen2 in training mode, with biases that are not zero."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = Qwen2ForCausalLM(toy_models.config(use_cache=False, **changes))
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.1)
    return model.train()


def _learn(model: Any, optimiser: Any, step: int, rate: float = 1e-2) -> None:
    """Make one step on the batch of this number."""
    ids = torch.from_numpy(keys.generator("test-mugrokfast", step).integers(0, 320, (4, 17)))
    logits = model(input_ids=ids[:, :-1]).logits
    F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    optimiser.step(rate * (step + 1) / 20)
    model.zero_grad(set_to_none=True)


def _copies(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def _same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


class _TorchsOwn:
    """Muon and AdamW of torch, with the parameters sorted by hand."""

    def __init__(self, model: Any) -> None:
        named = list(model.named_parameters())
        matrices = [p for n, p in named if n.endswith("_proj.weight")]
        norms = [p for n, p in named if n.endswith("bias") or "norm" in n]
        groups: Any = [
            {"params": [model.model.embed_tokens.weight], "weight_decay": 0.1},
            {"params": norms, "weight_decay": 0.0},
        ]
        self.all = [
            torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True),
        ]

    def step(self, rate: float) -> None:
        for optimiser in self.all:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()


def test_without_grokfast_and_clip_it_is_torchs_muon_and_adamw_bit_for_bit() -> None:
    """What an ablation compares must differ in one thing only."""
    ours, other = _model(), _model()
    start = _copies(ours)
    mine, plain = MuGrokfast(ours, PLAIN), _TorchsOwn(other)
    for step in range(20):
        _learn(ours, mine, step)
        _learn(other, plain, step)
        assert _same(_copies(ours), _copies(other)), step
    moved = _copies(ours)
    assert not any(torch.equal(start[n], moved[n]) for n in start if "k_proj.bias" not in n)


@pytest.mark.parametrize("changes", [{"grokfast_lambda": 0.3}, {"tau": 0.05}])
def test_each_part_changes_the_result(changes: dict[str, float]) -> None:
    """Settings that are parsed and then dropped would pass every other test."""
    ours, other = _model(), _model()
    mine, plain = MuGrokfast(ours, PLAIN.model_copy(update=changes)), MuGrokfast(other, PLAIN)
    for step in range(3):
        _learn(ours, mine, step)
        _learn(other, plain, step)
    assert not _same(_copies(ours), _copies(other))


def test_cut_after_every_step_it_goes_on_with_the_same_bits() -> None:
    """A training is carried out in segments, and their length changes nothing."""
    settings, steps = MuGrokfastSettings(grokfast_lambda=0.3, tau=0.05), 6
    model = _model()
    optimiser = MuGrokfast(model, settings)
    kept, clipped = [], 0
    for step in range(steps):
        _learn(model, optimiser, step)
        clipped += optimiser.clipped
        kept.append((_copies(model), write_tensors(optimiser.state())))
    assert clipped > 0
    for cut in range(steps - 1):
        weights, state = kept[cut]
        again = _model()
        again.load_state_dict(weights, strict=False)
        fresh = MuGrokfast(again, settings)
        fresh.load(read_tensors(state))
        for step in range(cut + 1, steps):
            _learn(again, fresh, step)
        assert _same(_copies(again), kept[-1][0]), cut
        assert _same(fresh.state(), read_tensors(kept[-1][1])), cut


def test_the_state_is_whole_and_is_copied_when_loaded() -> None:
    """Every parameter has its tensors: one of Muon's or three of AdamW's, and Grokfast's."""
    model = _model()
    optimiser = MuGrokfast(model, MuGrokfastSettings())
    assert optimiser.state() == {}
    _learn(model, optimiser, 0)
    state = {name: tensor.clone() for name, tensor in optimiser.state().items()}
    for name, _ in model.named_parameters():
        muon = name.endswith("_proj.weight")
        slots = ["momentum_buffer"] if muon else ["step", "exp_avg", "exp_avg_sq"]
        found = {key.rpartition("/")[2] for key in state if key.rpartition("/")[0] == name}
        assert found == {*slots, "grokfast"}, name
    before = {name: tensor.clone() for name, tensor in state.items()}
    _learn(model, optimiser, 1)
    assert not _same(state, optimiser.state())
    optimiser.load(state)
    _learn(model, optimiser, 2)
    assert _same(state, before)
    optimiser.load({})
    assert optimiser.state() == {}


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    """A training that goes on without its moments gives plausible losses, and other weights."""
    model = _model()
    optimiser = MuGrokfast(model, MuGrokfastSettings())
    _learn(model, optimiser, 0)
    state = optimiser.state()
    embedding = "model.embed_tokens.weight/exp_avg"
    broken = [
        {**state, "model.nowhere/exp_avg": torch.zeros(1)},
        {**state, embedding: torch.zeros(3)},
        {name: tensor for name, tensor in state.items() if name != embedding},
    ]
    for tensors in broken:
        with pytest.raises(OptimiserStateError):
            optimiser.load(tensors)
        assert _same(optimiser.state(), state)
    with pytest.raises(OptimiserStateError, match="grokfast"):
        MuGrokfast(_model(), PLAIN).load(state)


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_is_in_one_group(tied: bool) -> None:
    """Hidden matrices go to Muon; embedding, head, norms and biases go to AdamW; a tie counts once."""
    model = _model(tie_word_embeddings=tied)
    muon, adamw = split(model)
    names = [name for name, _ in [*muon, *adamw]]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert len({id(p) for _, p in [*muon, *adamw]}) == len(names)
    parts = ["q", "k", "v", "o", "gate", "up", "down"]
    assert len(muon) == 3 * len(parts)
    assert {name.split(".")[-2] for name, _ in muon} == {f"{part}_proj" for part in parts}
    ends = {name for name, p in adamw if p.dim() > 1}
    assert ends == {"model.embed_tokens.weight"} | (set() if tied else {"lm_head.weight"})


def test_a_matrix_that_is_also_an_embedding_goes_to_adamw() -> None:
    """A head that is tied in a model without `get_output_embeddings` is no hidden matrix."""
    model = torch.nn.Sequential(
        torch.nn.Embedding(6, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 6, bias=False)
    )
    model[2].weight = model[0].weight
    muon, adamw = split(model)
    assert [name for name, _ in muon] == ["1.weight"]
    assert [name for name, _ in adamw] == ["0.weight", "1.bias"]


def test_frozen_parameters_are_left_alone() -> None:
    """Phases that train a part of a model freeze the rest."""
    model = _model()
    model.model.embed_tokens.weight.requires_grad_(False)
    model.model.norm.weight.requires_grad_(False)
    before = _copies(model)
    optimiser = MuGrokfast(model, MuGrokfastSettings())
    _learn(model, optimiser, 0)
    after = _copies(model)
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert still == {"model.embed_tokens.weight", "model.norm.weight"}
    assert not any(name.startswith("model.norm") for name in optimiser.state())


def test_no_global_random_state_is_read_or_moved() -> None:
    """Bits that depend on what ran before in the process cannot be repeated."""
    results = []
    for seed in (1, 2):
        model = _model()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            np.random.seed(seed)
            states = torch.get_rng_state(), str(np.random.get_state())
            optimiser = MuGrokfast(model, MuGrokfastSettings())
            for step in range(2):
                _learn(model, optimiser, step)
            assert torch.equal(torch.get_rng_state(), states[0])
            assert str(np.random.get_state()) == states[1]
        results.append(_copies(model))
    assert _same(*results)


def _newton_schulz(matrix: np.ndarray, steps: int) -> np.ndarray:
    """Orthogonalise in float64: X ← a X + (b X Xᵀ + c (X Xᵀ)²) X, from X = G / ‖G‖."""
    x = matrix / np.linalg.norm(matrix)
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


@pytest.mark.parametrize("shape", [(24, 16), (16, 24)])
def test_muons_step_is_that_of_plain_numpy(shape: tuple[int, int]) -> None:
    """Momentum, Nesterov, Newton-Schulz, adjusted rate, decay, in float64, within bfloat16.

    bfloat16 keeps 8 bits (2⁻⁹ = 0.2 % rounding), and each of the five steps makes three products of
    it: 2 % is some ten roundings. A step more or less is above it by a factor of ten.
    """
    layer = torch.nn.Linear(shape[1], shape[0], bias=False)
    settings = PLAIN.model_copy(update={"weight_decay": 0.25})
    optimiser = MuGrokfast(layer, settings)
    rng = keys.generator("test-newton-schulz", *shape)
    layer.weight.data = torch.from_numpy(rng.standard_normal(shape)).float()
    momentum, rate = np.zeros(shape), 0.01
    for _ in range(3):
        before = layer.weight.detach().double().numpy().copy()
        gradient = rng.standard_normal(shape)
        layer.weight.grad = torch.from_numpy(gradient).float()
        optimiser.step(rate)
        moved = layer.weight.detach().double().numpy() - before * (1 - rate * 0.25)
        momentum = 0.95 * momentum + 0.05 * gradient
        update = 0.05 * gradient + 0.95 * momentum
        size = 0.2 * np.sqrt(max(shape)) * rate
        error = {n: _distance(moved / -size, _newton_schulz(update, n)) for n in (4, 5, 6)}
        assert error[5] < 0.02 < 0.1 < min(error[4], error[6]), error


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def test_presets_are_those_of_the_source_documents() -> None:
    """Phase 1: rate and λ; phase 3: rate; phase 5: λ."""
    assert (PRESETS[1].lr, PRESETS[1].settings.grokfast_lambda) == (1e-3, 0.3)
    assert PRESETS[3].lr == 5e-4
    assert PRESETS[5].settings.grokfast_lambda == 2.0
    assert {p.settings.tau for p in PRESETS.values()} == {100.0}
    with pytest.raises(ValidationError):
        MuGrokfastSettings(kl_coefficient=0.1)  # pyright: ignore
