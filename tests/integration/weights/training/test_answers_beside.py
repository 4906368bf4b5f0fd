"""Answers with noise and a self-model beside them: what each adds, and that it is cut anywhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Train
from agent_forge.weights.training.loop import segment
from agent_forge.weights.training.models import embedding_noise, modules
from agent_forge.weights.training.models.embedding_noise import Noise
from agent_forge.weights.training.models.self_model import untold
from agent_forge.weights.training.objectives.answers import Answers
from agent_forge.weights.training.objectives.answers_beside import AnswersBeside
from testing.models.toy_training import model
from tests.integration.weights.test_training import bits
from tests.integration.weights.training.test_answers import STREAMS, training

NOISE = {"scale": 0.5, "first": 3, "upto": 6}
SELF = {"weight": 0.2, "layer": 1}


def beside(**params: Any) -> Train:
    return training(objective="answers@2", params=params)


def objective(**params: Any) -> AnswersBeside:
    return AnswersBeside(beside(**params), modules.build(model()).eval(), STREAMS, {})


def test_without_both_it_is_the_first_version_to_the_last_bit() -> None:
    plain = segment(training(), model(), None, STREAMS, 0, 8, threads=1)
    both = segment(beside(), model(), None, STREAMS, 0, 8, threads=1)
    assert bits(plain) == bits(both)


def test_noise_is_in_its_steps_alone_and_of_the_embeddings_size() -> None:
    """A share 0.5 of a row's root mean square, of mean 0, another one in each step."""
    made = objective(noise=NOISE)
    assert ["noise" in made.batch(step) for step in (2, 3, 5, 6)] == [False, True, True, False]
    noise = made.batch(3)["noise"]
    assert noise.shape == (4, 20, 16)
    assert not torch.equal(noise, made.batch(4)["noise"])
    assert float(noise.mean()) == pytest.approx(0, abs=0.1)  # 1,280 numbers
    assert float(noise.square().mean()) == pytest.approx(1, abs=0.1)
    embedded = torch.full((4, 20, 16), 3.0)
    shaken = embedding_noise.shaken(embedded, noise, 0.5)
    torch.testing.assert_close(shaken, 3.0 + 0.5 * 3.0 * noise)
    assert Noise(**NOISE).at(3)


def test_items_do_not_see_each_other_under_noise_either() -> None:
    """With noise so small that it changes nothing the loss is that of the answers alone."""
    made = objective(noise={**NOISE, "scale": 1e-7})
    plain = Answers(training(), modules.build(model()).eval(), STREAMS, {})
    torch.testing.assert_close(
        made.loss(made.batch(4)), plain.loss(plain.batch(4)), rtol=1e-5, atol=1e-5
    )
    loud = objective(noise=NOISE)
    assert loud.loss(loud.batch(4)).item() != plain.loss(plain.batch(4)).item()


def test_what_the_last_layer_tells_linearly_costs_nothing() -> None:
    """And what it does not tell costs all: independent numbers, many more than the map has."""
    draws = torch.Generator().manual_seed(3)
    last = torch.randn(4000, 8, generator=draws)
    told = last @ torch.randn(8, 5, generator=draws) + 2.0
    # Gram matrix: about 4000 on the diagonal, ridge 4, so ρ‖G‖² / Σ‖a‖² is about a thousandth.
    assert float(untold(told, last)) < 2e-3
    apart = torch.randn(4000, 5, generator=draws)
    assert float(untold(apart, last)) == pytest.approx(1.0, abs=0.02)


def test_the_gradient_is_that_of_a_map_that_is_always_the_best() -> None:
    """Compared with a map found anew at each displaced point, in double precision differences."""
    draws = torch.Generator().manual_seed(5)
    inner = torch.randn(30, 3, generator=draws, requires_grad=True)
    last = torch.randn(30, 4, generator=draws, requires_grad=True)
    untold(inner, last).backward()
    assert inner.grad is not None
    assert last.grad is not None

    def value(a: torch.Tensor, h: torch.Tensor) -> float:
        given = torch.cat([h, torch.ones(30, 1)], -1).double()
        wanted, fixed = a.double(), last.detach().double()
        own = torch.cat([fixed, torch.ones(30, 1)], -1)
        ridge = 1e-3 * float((own.T @ own).diagonal().mean())  # held, as in the gradient
        gram = given.T @ given + ridge * torch.eye(5).double()
        fitted = torch.linalg.solve(gram, given.T @ wanted)
        left = (wanted - given @ fitted).square().sum() + ridge * fitted.square().sum()
        return float(left / inner.detach().double().square().sum())

    for tensor, gradient in ((inner, inner.grad), (last, last.grad)):
        for place in ((0, 0), (7, 2), (29, 1)):
            found = []
            for sign in (1, -1):
                moved = tensor.detach().clone().double()
                moved[place] += sign * 1e-4
                pair = (moved, last.detach()) if tensor is inner else (inner.detach(), moved)
                found.append(value(*pair))
            assert float(gradient[place]) == pytest.approx(
                (found[0] - found[1]) / 2e-4, rel=1e-3, abs=1e-6
            )


def test_the_self_model_reads_items_alone_and_lowers_what_is_untold() -> None:
    """The rest of a row is no activation of its own; 8 steps with a large weight make it smaller."""
    made = objective(self_model=SELF)
    batch = made.batch(2)
    for row in range(4):
        last = int(batch["answers"][row].nonzero()[-1])
        assert batch["read"][row].tolist() == [place <= last for place in range(20)]
    plain = segment(beside(), model(), None, STREAMS, 0, 8, threads=1)
    strong = beside(self_model={"weight": 20.0, "layer": 1})
    ours = segment(strong, model(), None, STREAMS, 0, 8, threads=1)

    def left(weights: Any) -> float:
        module = modules.build(model()).eval()
        modules.fill(module, type(model())(model().config, weights))
        whole = AnswersBeside(beside(self_model={"weight": 1.0, "layer": 1}), module, STREAMS, {})
        bare = Answers(training(), module, STREAMS, {})
        with torch.no_grad():
            return float(whole.loss(whole.batch(50)) - bare.loss(bare.batch(50)))

    assert left(ours.weights) < left(plain.weights)


def test_it_is_cut_anywhere() -> None:
    recipe = beside(noise=NOISE, self_model=SELF)
    whole = segment(recipe, model(), None, STREAMS, 0, 8, threads=1)
    for cut in (3, 4):
        before = segment(recipe.to(cut), model(), None, STREAMS, 0, cut, threads=1)
        start = type(model())(model().config, before.weights)
        after = segment(recipe, start, before.optimiser, STREAMS, cut, 8, threads=1)
        assert after.weights.keys() == whole.weights.keys()
        assert all(torch.equal(after.weights[name], t) for name, t in whole.weights.items())


def test_a_layer_that_there_is_not_and_noise_without_bounds_are_refused() -> None:
    with pytest.raises(ConfigError, match="after block 2: the model has 2 blocks"):
        objective(self_model={"weight": 1.0, "layer": 2})
    with pytest.raises(ValidationError):
        Noise(scale=1.5, first=0, upto=1)
