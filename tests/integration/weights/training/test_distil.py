"""Distillation: what its loss is, and that it is cut anywhere."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import operations
from agent_forge.weights.recipes import Train, Transform
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.loop import segment
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.models.modules import divergence
from agent_forge.weights.training.objectives.distil import Distil
from testing.models.toy_training import model, recipe, streams
from tests.integration.weights.test_training import bits, carried_out

TEACHER = {"teacher": "7" * 64}


def training(params: dict[str, Any] | None = None, **changes: Any) -> Train:
    return recipe(objective="distil@1", params=params or {}, inputs=TEACHER, **changes)


def with_sizes(**sizes: int) -> Tensors:
    """A model of the toy's family with other sizes."""
    shape = Transform(operation="resized@1", inputs={"of": "1" * 64}, params={"changes": sizes})
    return operations.apply(shape, {"of": model()})


def test_the_divergence_is_that_of_a_hand() -> None:
    """Two tokens, T = 2. The teacher's logits (2 log 3, 0) become (log 3, 0): (¾, ¼). The student's
    (0, 0) stay (½, ½). KL = ¾ log (¾ / ½) + ¼ log (¼ / ½) = ¾ log 3 − log 2.
    """
    wanted = torch.tensor([[[2 * math.log(3), 0.0]]])
    ours = torch.zeros(1, 1, 2)
    by_hand = 0.75 * math.log(3) - math.log(2)
    assert divergence(wanted, ours, 2.0).item() == pytest.approx(by_hand, rel=1e-6)
    twice = divergence(wanted.repeat(1, 3, 1), ours.repeat(1, 3, 1), 2.0)
    assert twice.item() == pytest.approx(by_hand, rel=1e-6)  # a mean over tokens


def test_the_loss_weighs_text_and_teacher() -> None:
    """A model of zeros is uniform: cross-entropy log 64; the teacher's entropy says the divergence."""
    zero = Tensors(model().config, {n: torch.zeros_like(t) for n, t in model().weights.items()})
    params = {"weight": 0.25, "temperature": 2.0}
    teacher = {"teacher": model()}
    found = Distil(training(params), modules.build(zero), streams(), teacher)
    batch = found.batch(0)
    logits = modules.build(model()).eval()(input_ids=batch["tokens"][:, :-1]).logits.detach()
    soft = (logits.double() / 2).softmax(-1)
    entropy = -(soft * soft.log()).sum(-1).mean().item()
    by_hand = 0.75 * math.log(64) + 0.25 * 4 * (math.log(64) - entropy)
    assert found.loss(batch).item() == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_smaller_student_that_is_cut_after_every_step_has_the_same_bits(precision: str) -> None:
    """The teacher is another architecture than the student, and never written to."""
    whole_recipe = training({"temperature": 2.0}, precision=precision, accumulation=2)
    before = {name: tensor.clone() for name, tensor in model().weights.items()}

    def carried(cuts: tuple[int, ...]) -> Any:
        optimiser, start = None, with_sizes(hidden_size=8, intermediate_size=12)
        made = None
        for first, last in itertools.pairwise((0, *cuts, 8)):
            given = {"teacher": model()}
            made = segment(whole_recipe, start, optimiser, streams(), first, last, inputs=given)
            start, optimiser = Tensors(start.config, made.weights), made.optimiser
        return made

    whole, cut = carried(()), carried(tuple(range(1, 8)))
    assert bits(cut) == bits(whole)
    assert whole.losses[-1] < whole.losses[0]
    assert whole.weights["model.embed_tokens.weight"].shape == (64, 8)
    assert all(torch.equal(before[name], tensor) for name, tensor in model().weights.items())


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reads the models \['teacher'\], not \[\]"):
        carried_out(training())
    with pytest.raises(ConfigError, match="weight"):
        training({"weight": 0})
    other = with_sizes(vocab_size=32)
    with pytest.raises(ConfigError, match="predicts 32 tokens, the model 64"):
        carried_out(training(), inputs={"teacher": other})
    with pytest.raises(ConfigError, match="has no x to change"):
        with_sizes(x=1)
