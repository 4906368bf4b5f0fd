"""The cross-entropy method as a training: a quadratic, cuts at any step, text, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from pydantic import BaseModel, ConfigDict

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import svf
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import objectives
from agent_forge.weights.training.loop import Snapshot, segment
from testing.models import toy_training
from tests.golden.operations import SVD, factored

BEST = torch.tensor([0.7, -1.2, 0.1])


class Nothing(BaseModel):
    """Parameters: none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Quadratic:
    """Σ (z − z*)² of three numbers, the same at every step."""

    Params = Nothing

    def __init__(self, recipe: Train, module: Any, streams: Any, inputs: Any) -> None:
        self._z, self.tokens = module.z, 1

    @staticmethod
    def module(recipe: Train, start: Tensors, inputs: Mapping[str, Tensors], device: str) -> Any:
        """Return a module of the numbers alone."""
        found: Any = torch.nn.Module()
        found.z = torch.nn.Parameter(start.weights["z"].clone())
        return found

    def batch(self, step: int) -> dict[str, torch.Tensor]:
        """Return rows of nothing."""
        return {"none": torch.zeros(4)}

    def loss(self, part: Any) -> torch.Tensor:
        """Return the squared distance."""
        return (self._z - BEST).square().sum()

    def state(self) -> dict[str, torch.Tensor]:
        """Return nothing."""
        return {}

    def load(self, tensors: Any) -> None:
        """Take nothing."""


@pytest.fixture
def quadratic(monkeypatch: pytest.MonkeyPatch) -> Train:
    """A search of 30 steps for the numbers of the quadratic."""
    monkeypatch.setitem(objectives.OBJECTIVES, "quadratic@1", f"{__name__}:Quadratic")
    params = {"objective": "quadratic@1", "points": 64, "elite": 16, "spread": 1.0}
    return toy_training.recipe("none@1", objective="cem@1", params=params, steps=30)


def done(own: Train, first: int, last: int, before: Snapshot | None = None) -> Snapshot:
    """Do some steps from zero, or from a snapshot."""
    start = Tensors({}, before.weights if before else {"z": torch.zeros(3)})
    optimiser = before.optimiser if before else None
    return segment(own, start, optimiser, toy_training.streams(), first, last, threads=1)


def test_it_finds_the_least_of_a_quadratic(quadratic: Train) -> None:
    found = done(quadratic, 0, 30)
    assert found.weights["z"].tolist() == pytest.approx(BEST.tolist(), abs=0.01)
    assert found.losses[0] == pytest.approx(float(BEST.square().sum()))
    assert found.losses[-1] < 1e-3
    assert set(found.rates) == {0.0}  # there is no learning rate
    assert found.norms[0] > found.norms[-1] > 0
    assert found.tokens == 30 * 64


def test_cut_after_any_step_it_goes_on_with_the_same_bits(quadratic: Train) -> None:
    """The deviation is part of the snapshot; without it the search would begin wide again."""
    through = done(quadratic, 0, 9)
    for cut in (1, 4, 8):
        again = done(quadratic, cut, 9, done(quadratic, 0, cut))
        assert digest(again.weights | again.optimiser) == digest(through.weights | through.optimiser)
        assert again.losses == through.losses[cut:]


def test_vectors_are_searched_by_the_loss_of_text() -> None:
    """The mean of the points has a smaller loss in the end, on rows that it has not seen."""
    inner = {"objective": "svf@2", "params": {"objective": "lm@1"}}
    own = toy_training.recipe(
        "none@1",
        objective="cem@1",
        params={**inner, "points": 8, "elite": 2, "spread": 0.3},
        inputs={"of": toy_training.INIT.id, "svd": SVD.id},
        batch=16,
        steps=20,
    )
    start = Tensors({}, svf.ones(factored().weights))
    inputs = {"of": toy_training.model(), "svd": factored()}
    found = segment(own, start, None, toy_training.streams(), 0, 20, inputs=inputs, threads=1)
    assert set(found.weights) == set(start.weights)
    assert sum(found.losses[-3:]) < sum(found.losses[:3])


def test_what_does_not_fit_is_refused(quadratic: Train) -> None:
    wrong = quadratic.model_copy(update={"optimiser": toy_training.recipe().optimiser})
    with pytest.raises(ConfigError, match=r"its optimiser is none@1, not adamw@1"):
        done(wrong, 0, 1)
    for params, said in (
        ({"objective": "reinforce@1"}, "searches without gradients do not serve"),
        ({"objective": "quadratic@1", "points": 4, "elite": 5}, "the best 5 of 4 points"),
    ):
        with pytest.raises(ConfigError, match=said):
            toy_training.recipe("none@1", objective="cem@1", params=params)
