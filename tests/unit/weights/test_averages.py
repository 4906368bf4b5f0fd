"""Averages of a training's snapshots: which steps, which factors, and what they compute."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights import operations
from agent_forge.weights.operations import average
from agent_forge.weights.recipes import Algorithm, Train, Transform
from agent_forge.weights.tensors import Tensors


def training(steps: int, first: int = 0) -> Train:
    return Train(
        objective="lm@1",
        start="0" * 64,
        data={"text": 1.0},
        data_digests={"text": "1" * 64},
        batch=1,
        context=8,
        optimiser=Algorithm(name="adamw@1"),
        schedule=Algorithm(name="constant@1", params={"peak": 1e-3}),
        purpose="code",
        steps=steps,
        first=first,
        upto=steps,
    )


def test_snapshots_are_of_the_last_fifth_at_even_distances() -> None:
    """Four snapshots of 1000 steps are 50 apart; they are recipes of one training."""
    whole = training(1000)
    found = average.snapshots(whole, 4)
    assert [one.upto for one in found] == [850, 900, 950, 1000]
    assert {one.stem for one in found} == {whole.stem}
    assert found[-1] == whole


def test_too_few_steps_are_refused() -> None:
    assert [one.upto for one in average.snapshots(training(4), 4)] == [1, 2, 3, 4]
    with pytest.raises(ConfigError, match="5 snapshots, and the code training has 4 steps"):
        average.snapshots(training(4), 5)


@pytest.mark.parametrize("decay", average.DECAYS)
def test_an_average_is_the_training_with_its_steps_scaled(decay: str) -> None:
    """Theorem 3.1: Σ cⱼθⱼ = θ₀ + Σ wⱼ (θⱼ − θⱼ₋₁), where wⱼ is what the decay leaves at j / n."""
    moves = np.random.default_rng(1).standard_normal((5, 3))
    models = moves.cumsum(axis=0)
    shares = average.factors(decay, 5)
    assert math.fsum(shares) == pytest.approx(1.0)
    assert min(shares) >= 0
    left = [average.DECAYS[decay](place / 5) for place in range(1, 5)]
    scaled = moves[0] + sum(w * move for w, move in zip(left, moves[1:], strict=True))
    np.testing.assert_allclose(np.array(shares) @ models, scaled)


def test_the_linear_decay_is_the_mean() -> None:
    assert average.factors("linear", 4) == (0.25,) * 4


def test_an_average_by_hand() -> None:
    """Half, three tenths and a fifth, rounded once to the first model's dtype; integers stay."""
    recipe = average.of([training(1000).to(step) for step in (980, 990, 1000)], (0.5, 0.3, 0.2))
    models = [
        Tensors({}, {"w": torch.tensor([x, 2 * x], dtype=torch.bfloat16), "n": torch.tensor([7])})
        for x in (1.0, 2.0, -4.0)
    ]
    inputs = dict(zip(sorted(recipe.inputs), models, strict=True))
    made = operations.apply(recipe, inputs).weights
    assert made["w"].dtype == torch.bfloat16
    torch.testing.assert_close(made["w"], torch.tensor([0.3, 0.6], dtype=torch.bfloat16))
    assert made["n"].tolist() == [7]
    assert operations.complete(recipe) == recipe


def test_models_that_do_not_fit_are_refused() -> None:
    recipe = Transform(
        operation="average@1",
        inputs={average.role(place): f"{place}" * 64 for place in range(2)},
        params={"factors": [0.5, 0.5]},
    )
    one, other = Tensors({}, {"w": torch.ones(2)}), Tensors({}, {"w": torch.ones(3)})
    with pytest.raises(SourceError, match="of other shapes"):
        operations.apply(recipe, {average.role(0): one, average.role(1): other})
    alone = recipe.model_copy(update={"params": {"factors": [1.0]}})
    with pytest.raises(ConfigError, match="average reads"):
        operations.apply(alone, {average.role(0): one, average.role(1): one})
