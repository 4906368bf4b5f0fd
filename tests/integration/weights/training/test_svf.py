"""Training of vectors that scale singular values: what is trained, and that it is cut anywhere."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest
import torch

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights import operations, svf
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Algorithm, Train, Transform
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.loop import segment
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.objectives.svf import Svf
from testing.models.toy_training import INIT, model, recipe, streams
from testing.shares import one_quick
from tests.integration.weights.test_training import bits

SVD = operations.complete(Transform(operation="svf-decompose@1", inputs={"of": INIT.id}))
ONES = Transform(operation="svf-ones@1", inputs={"svd": SVD.id})


@cache
def inputs() -> dict[str, Tensors]:
    """The toy model and its decomposition."""
    return {"of": model(), "svd": operations.apply(SVD, {"of": model()})}


def ones() -> Tensors:
    """Vectors that change nothing."""
    return operations.apply(ONES, {"svd": inputs()["svd"]})


def training(params: dict[str, Any] | None = None, **more: Any) -> Train:
    """Return the toy training of vectors."""
    own = {"of": INIT.id, "svd": SVD.id}
    fields = {"objective": "svf@1", "params": params or {}, "inputs": own, "start": ONES.id}
    return recipe(**{**fields, **more})


def carried(whole: Train, cuts: tuple[int, ...]) -> Any:
    """The last snapshot of a training that is cut after these steps."""
    optimiser, start, made = None, ones(), None
    for first, last in itertools.pairwise((0, *cuts, whole.upto)):
        made = segment(whole, start, optimiser, streams(), first, last, inputs=inputs())
        start, optimiser = Tensors(start.config, made.weights), made.optimiser
    return made


@pytest.mark.parametrize("checkpointing", one_quick(True, False))
@pytest.mark.parametrize("precision", one_quick("bfloat16", "float32"))
def test_vectors_cut_after_every_step_have_the_same_bits(precision: str, checkpointing: bool) -> None:
    """A snapshot is the vectors alone; the model beneath is never written to."""
    before = digest(model().weights)
    more = {"precision": precision, "checkpointing": checkpointing}
    whole_recipe = training({"pull": 0.1}, accumulation=2, **more)
    whole, cut = carried(whole_recipe, ()), carried(whole_recipe, tuple(range(1, 8)))
    assert bits(cut) == bits(whole)
    assert any(not torch.equal(z, torch.ones_like(z)) for z in whole.weights.values())
    assert {n: len(z) for n, z in whole.weights.items()} == {
        n: len(z) for n, z in ones().weights.items()
    }
    assert digest(model().weights) == before


def test_vectors_learn() -> None:
    """The loss of the first step's rows, before and after a training."""
    steep = Algorithm(name="cosine@1", params={"peak": 0.3})
    whole = training(steps=40, schedule=steep)
    after = Tensors({}, carried(whole, ()).weights)
    losses = []
    for vectors in (ones(), after):
        found = Svf(whole, Svf.module(whole, vectors, inputs(), "cpu"), streams(), inputs())
        losses.append(found.loss(found.batch(0)).item())
    assert losses[1] < losses[0] - 0.01


def test_activations_computed_again_give_the_same_bits() -> None:
    """Checkpointing reads the scaled matrices again in the backward pass, not the plain ones."""
    kept, again = training(), training(checkpointing=True)
    assert bits(carried(kept, ())) == bits(carried(again, ()))


def test_vectors_of_ones_compute_the_model_itself() -> None:
    """W(1) is W to the last bit, so the first step's loss is that of the plain model."""
    plain = modules.build(model())
    whole = training()
    scaled = Svf.module(whole, ones(), inputs(), "cpu")
    ids = torch.arange(12)[None]
    assert torch.equal(scaled(input_ids=ids).logits, plain(input_ids=ids).logits)


def test_the_gradient_is_that_of_differences() -> None:
    """D loss / d z of one direction, by the difference quotient of folded models."""
    whole = training()
    module = Svf.module(whole, ones(), inputs(), "cpu")
    found = Svf(whole, module, streams(), inputs())
    batch = found.batch(0)
    found.loss(batch).backward()
    name = sorted(ones().weights)[0]
    gradient = dict(module.named_parameters())[name].grad
    assert gradient is not None

    def loss(step: float) -> float:
        z = ones().weights
        moved = {**z, name: z[name].clone()}
        moved[name][0] += step
        change = svf.of_vectors(inputs()["svd"].weights, moved)
        folded = svf.added(model().weights, [change], [1.0])
        plain = modules.build(Tensors(model().config, folded)).double()
        tokens = batch["tokens"]
        logits = plain(input_ids=tokens[:, :-1]).logits.flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten()).item()

    quotient = (loss(0.05) - loss(-0.05)) / 0.1
    assert gradient[0].item() == pytest.approx(quotient, rel=2e-2, abs=1e-6)


def test_the_pull_is_the_mean_square_of_what_differs_from_one() -> None:
    """All z at 3, weight 0.5: the loss is 0.5 · (3 − 1)² = 2 above that without a pull."""
    start = Tensors({}, {name: torch.full_like(z, 3.0) for name, z in ones().weights.items()})
    losses = []
    for pull in (0.0, 0.5):
        whole = training({"pull": pull})
        module = Svf.module(whole, start, inputs(), "cpu")
        found = Svf(whole, module, streams(), inputs())
        losses.append(found.loss(found.batch(0)).item())
    assert losses[1] - losses[0] == pytest.approx(2.0, rel=1e-5)


def test_what_does_not_fit_is_refused() -> None:
    whole = training()
    with pytest.raises(ConfigError, match="reads the models"):
        segment(whole, ones(), None, streams(), 0, 1, inputs={"of": model()})
    short = Tensors({}, {name: z[:1] for name, z in ones().weights.items()})
    with pytest.raises(SourceError, match="not those of the decomposition"):
        segment(whole, short, None, streams(), 0, 1, inputs=inputs())
    with pytest.raises(ConfigError, match="cannot be sharded"):
        segment(whole, ones(), None, streams(), 0, 1, inputs=inputs(), sharded=True)
