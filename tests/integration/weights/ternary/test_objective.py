"""Quantisation-aware training: what it computes, and that it is cut anywhere."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.ternary import linears, quantiser
from agent_forge.weights.training.loop import segment
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.objectives.ternary import TernaryObjective
from agent_forge.weights.training.team import Team
from agent_forge.weights.training.team import segment as in_team
from testing.models.toy_training import model, recipe, streams
from testing.shares import one_quick
from tests.integration.weights.test_training import bits, carried_out

TEACHER = {"teacher": "7" * 64}


def training(params: dict[str, Any] | None = None, **changes: Any) -> Train:
    return recipe(objective="ternary@1", params=params or {}, **changes)


def objective(params: dict[str, Any], inputs: dict[str, Tensors] | None = None) -> tuple[Any, Any]:
    """An objective over the toy model, and its module."""
    roles = TEACHER if inputs else {}
    module = modules.build(model()).train()
    return TernaryObjective(training(params, inputs=roles), module, streams(), inputs or {}), module


@pytest.mark.parametrize("checkpointing", one_quick(True, False))
@pytest.mark.parametrize("precision", one_quick("bfloat16", "float32"))
def test_a_training_that_is_cut_after_every_step_gives_the_same_bits(
    precision: str, checkpointing: bool
) -> None:
    """λ follows from the step's number, and is no state."""
    whole_recipe = training(
        {"group": 8, "distillation": 0.5},
        inputs=TEACHER,
        precision=precision,
        accumulation=2,
        checkpointing=checkpointing,
    )
    teacher = {"teacher": model()}
    whole = carried_out(whole_recipe, inputs=teacher)
    cut = carried_out(whole_recipe, tuple(range(1, 8)), inputs=teacher)
    assert bits(cut) == bits(whole)
    assert whole.losses[-1] < whole.losses[0]
    assert {t.dtype for t in whole.weights.values()} == {torch.float32}


def test_checkpointing_and_accumulation_change_no_more_than_in_other_trainings() -> None:
    plain, again = (carried_out(training(checkpointing=c)) for c in (False, True))
    assert digest(plain.weights) == digest(again.weights)
    big, parts = (carried_out(training(accumulation=n, steps=1)) for n in (1, 4))
    assert parts.losses[0] == pytest.approx(big.losses[0], rel=1e-6)


def test_quantisation_begins_with_none_and_is_whole_after_the_warm_up() -> None:
    """8 steps, half of them rising: λ is 0, ¼, ½, ¾, 1, 1 …"""
    found, _ = objective({"warmup": 0.5})
    shares = [found.batch(step)["share"].tolist() for step in range(8)]
    assert shares == [[share] * 4 for share in (0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0)]
    at_once, _ = objective({"warmup": 0.0})
    assert at_once.batch(0)["share"].tolist() == [1.0] * 4


def test_the_loss_is_that_of_a_model_whose_matrices_are_ternary() -> None:
    """Quantised by hand and read by a plain module; embedding (the head) and norms stay."""
    found, module = objective({"warmup": 0.0, "int8_activations": False})
    batch = found.batch(0)
    ternary = {
        name: quantiser.quantise(tensor) if "_proj.weight" in name else tensor
        for name, tensor in model().weights.items()
    }
    plain = modules.build(Tensors(model().config, ternary)).eval()
    tokens = batch["tokens"]
    logits = plain(input_ids=tokens[:, :-1]).logits
    wanted = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert found.loss(batch).item() == pytest.approx(wanted.item(), rel=1e-6)
    assert linears.names(module) == sorted(n for n in ternary if "_proj.weight" in n)
    assert len(linears.names(module)) == 14
    none = {**batch, "share": torch.zeros(4)}
    plain_module = modules.build(model()).eval()
    logits = plain_module(input_ids=tokens[:, :-1]).logits
    wanted = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert found.loss(none).item() == pytest.approx(wanted.item(), rel=1e-6)


def test_int8_activations_are_what_the_packed_model_computes_with() -> None:
    """At λ = 1 the trained forward and the forward of its ternary weights have the same bits."""
    found, _ = objective({"warmup": 0.0})
    batch = found.batch(0)
    ternary = {
        name: quantiser.quantise(tensor) if "_proj.weight" in name else tensor
        for name, tensor in model().weights.items()
    }
    packed = modules.build(Tensors(model().config, ternary)).eval()
    linears.compute_packed(packed, 0, int8=True)
    tokens = batch["tokens"]
    logits = packed(input_ids=tokens[:, :-1]).logits
    wanted = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert found.loss(batch).item() == wanted.item()
    float_only, _ = objective({"warmup": 0.0, "int8_activations": False})
    assert found.loss(batch).item() != float_only.loss(batch).item()


def test_distillation_adds_the_divergence_from_the_teacher() -> None:
    """A teacher that is uniform: KL(uniform ‖ p) = −log V − mean log p."""
    zero = {n: torch.zeros_like(t) for n, t in model().weights.items()}
    uniform = Tensors(model().config, zero)
    batch = objective({})[0].batch(0) | {"share": torch.zeros(4)}
    plain = objective({})[0].loss(batch).item()
    taught = objective({"distillation": 100.0}, {"teacher": uniform})[0].loss(batch).item()
    logits = modules.build(model())(input_ids=batch["tokens"][:, :-1]).logits
    kl = -math.log(64) - logits.log_softmax(-1).mean().item()
    assert taught - plain == pytest.approx(100 * kl, rel=1e-4)


def test_the_gradient_of_a_layer_is_that_of_its_rounded_product() -> None:
    """The product is x̃ W̃ᵀ + b, and straight through: dW = gᵀ x̃, dx = g W̃, db = Σ g."""
    generator = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    layer = torch.nn.Linear(6, 4)
    with torch.no_grad():
        layer.weight.copy_(normal(4, 6))
        layer.bias.copy_(normal(4))
    for group in (0, 3):
        layer.zero_grad()
        module = torch.nn.Sequential(layer)
        linears.train_ternary(module, group, int8=True)
        x, upstream = normal(5, 6).requires_grad_(), normal(5, 4)
        whole, factor = quantiser.int8(x.detach())
        rounded, ternary = whole / factor, quantiser.quantise(layer.weight.detach(), group)
        y = module(x)
        torch.testing.assert_close(y, rounded @ ternary.T + layer.bias)
        (y * upstream).sum().backward()
        assert layer.weight.grad is not None
        torch.testing.assert_close(layer.weight.grad, upstream.T @ rounded)
        torch.testing.assert_close(x.grad, upstream @ ternary)
        torch.testing.assert_close(layer.bias.grad, upstream.sum(0))


def test_a_matrix_of_zeros_stays_finite() -> None:
    layer = torch.nn.Linear(4, 2, bias=False)
    torch.nn.init.zeros_(layer.weight)
    module = torch.nn.Sequential(layer)
    linears.train_ternary(module, 0, int8=True)
    y = module(torch.ones(1, 4))
    y.sum().backward()
    assert y.tolist() == [[0.0, 0.0]]
    assert layer.weight.grad is not None
    assert layer.weight.grad.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True])
def test_processes_share_a_step_and_its_teacher(sharded: bool) -> None:
    """Weights that are split are whole in each layer's pass: scales are those of whole matrices."""
    whole = training({"distillation": 0.5}, inputs=TEACHER, steps=2)
    work = (whole, model(), None, streams(), 0, 2)
    teacher = {"teacher": model()}
    alone = segment(*work, inputs=teacher)
    team = in_team(*work, inputs=teacher, team=Team(2, sharded))
    assert team.losses == pytest.approx(alone.losses, rel=1e-5)
    assert team.norms == pytest.approx(alone.norms, rel=1e-4)


def test_what_does_not_fit_is_refused() -> None:
    for params, inputs, given, match in (
        ({"group": 5}, {}, {}, r"groups of 5 columns do not divide the 16 of model.layers.0"),
        ({"distillation": 0.5}, {}, {}, "reads the models"),
        ({}, TEACHER, {"teacher": model()}, r"not \['teacher'\]"),
    ):
        with pytest.raises(ConfigError, match=match):
            segment(training(params, inputs=inputs), model(), None, streams(), 0, 8, inputs=given)
