"""REINFORCE: its gradient, its loss, its best policy on a toy; vectors that it trains, cut anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agent_forge.runs.errors import ConfigError, DataError, SourceChangedError
from agent_forge.weights import svf
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.loop import Snapshot, segment
from agent_forge.weights.training.objectives.reinforce import Reinforce
from agent_forge.weights.training.windows import stream_digest
from testing.models import toy_training
from testing.shares import one_quick
from tests.golden.operations import SVD, factored

#: Tokens of the toy's vocabulary; the answer to the prompt (0, 1) is 2, and then the end.
SIZE, RIGHT, END = 6, 2, 5
STREAM = np.asarray([0, 1, -1 - RIGHT, -1 - END], np.int32)


class Policy(torch.nn.Module):
    """A policy that says each token with the same probabilities after any other."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.z = torch.nn.Parameter(torch.tensor(logits))

    def forward(self, input_ids: torch.Tensor) -> Any:
        """Return logits [rows, tokens, SIZE]."""
        rows, width = input_ids.shape
        found = self.z.expand(rows, width, SIZE)
        return type("Output", (), {"logits": found})()

    def right(self) -> torch.Tensor:
        """Return the probability of the right reply."""
        p = self.z.softmax(-1)
        return p[RIGHT] * p[END]


def recipe(stream: np.ndarray = STREAM, **changes: Any) -> Train:
    """Return a recipe of REINFORCE on one item."""
    own = {
        "objective": "reinforce@1",
        "params": {"kl": 0.0},
        "data": {"only": 1.0},
        "data_digests": {"only": stream_digest(stream)},
    }
    return toy_training.recipe(**{**own, **changes})


def objective(policy: Policy, **changes: Any) -> Reinforce:
    """Return the objective of a policy."""
    return Reinforce(recipe(**changes), policy, {"only": STREAM}, {})


@pytest.mark.parametrize("baseline", one_quick(True, False))
def test_the_mean_gradient_is_that_of_the_expected_reward(baseline: bool) -> None:
    """E r = 2 P(right) − 1, whose gradient autograd has; with a baseline it is as unbiased."""
    policy = Policy([0.3, -0.2, 1.0, 0.1, -0.4, 0.8])
    wanted = torch.autograd.grad(2 * policy.right() - 1, policy.z)[0]
    made = objective(policy, batch=64, params={"kl": 0.0, "baseline": baseline})
    found = []
    for step in range(300):
        loss = made.loss(made.batch(step))
        found.append(-torch.autograd.grad(loss, policy.z)[0])
    every = torch.stack(found)
    error = every.std(dim=0) / len(found) ** 0.5
    assert ((every.mean(dim=0) - wanted).abs() < 4 * error + 1e-4).all()
    assert (wanted.abs() > 6 * error).sum() >= 3  # so a wrong gradient would be seen


def test_the_loss_is_minus_the_mean_reward_and_the_divergence_along_replies() -> None:
    policy, kl = Policy([0.3, -0.2, 1.0, 0.1, -0.4, 2.0]), 0.25
    made = objective(policy, batch=32)
    part = made.batch(3)
    replies = [
        row[start : start + size].tolist()
        for row, start, size in zip(part["tokens"], part["starts"], part["sizes"], strict=True)
    ]
    right = [reply == [RIGHT, END] for reply in replies]
    assert 0 < sum(right) < len(right)
    assert part["rewards"].tolist() == [1.0 if one else -1.0 for one in right]
    others = [(sum(part["rewards"]) - r) / 31 for r in part["rewards"]]
    assert part["gains"].tolist() == pytest.approx(
        [float(r - o) for r, o in zip(part["rewards"], others, strict=True)]
    )
    for reply in replies:  # each ends with the end token, or two tokens beyond the answer
        assert (reply[-1] == END) != (len(reply) == 4 and END not in reply)
        assert END not in reply[:-1]
    mean = -float(part["rewards"].mean())
    assert float(made.loss(part).detach()) == pytest.approx(mean, abs=1e-6)
    made._params = made._params.model_copy(update={"kl": kl})
    made._reference = Reference()  # type: ignore[assignment]
    ours, theirs = policy.z.detach().log_softmax(-1), torch.zeros(SIZE).log_softmax(-1)
    apart = float((ours.exp() * (ours - theirs)).sum())
    tokens = sum(map(len, replies)) / len(replies)
    assert float(made.loss(part).detach()) == pytest.approx(mean + kl * apart * tokens, abs=1e-5)


class Reference:
    """A model that says all tokens alike."""

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return zeros [rows, tokens, SIZE]."""
        return torch.zeros(*tokens.shape, SIZE)


def test_it_finds_the_best_policy_of_a_toy() -> None:
    """P(right) = p₂ · p₅ is largest where both are a half: a product with a fixed sum."""
    policy = Policy([0.0] * SIZE)
    made = objective(policy, batch=64)
    optimiser = torch.optim.Adam([policy.z], lr=0.05)
    for step in range(150):
        optimiser.zero_grad()
        made.loss(made.batch(step)).backward()
        optimiser.step()
    found = policy.z.softmax(-1)
    assert found[RIGHT].item() == pytest.approx(0.5, abs=0.06)
    assert found[END].item() == pytest.approx(0.5, abs=0.06)
    assert policy.right().item() > 0.22  # 0.028 at first


def vectors(**changes: Any) -> Train:
    """Return the training of vectors by REINFORCE, near to the given model."""
    own = {
        "objective": "svf@2",
        "params": {"objective": "reinforce@1", "params": {"kl": 0.1}},
        "inputs": {"of": toy_training.INIT.id, "svd": SVD.id, "reference": toy_training.INIT.id},
        "data_digests": {name: stream_digest(ids) for name, ids in toy_training.ended().items()},
    }
    return toy_training.recipe(**{**own, **changes})


def trained(own: Train, first: int, last: int, before: Snapshot | None = None) -> Snapshot:
    """Do some steps."""
    start = before.weights if before else svf.ones(factored().weights)
    inputs = {"of": toy_training.model(), "svd": factored(), "reference": toy_training.model()}
    optimiser = before.optimiser if before else None
    streams = toy_training.ended()
    return segment(own, Tensors({}, start), optimiser, streams, first, last, inputs=inputs, threads=1)


def test_vectors_are_trained_by_it_with_the_same_bits_wherever_it_is_cut() -> None:
    own = vectors()
    through = trained(own, 0, 8)
    assert set(through.weights) == set(svf.ones(factored().weights))
    assert any(not torch.equal(z, torch.ones_like(z)) for z in through.weights.values())
    cut = trained(own, 3, 8, trained(own, 0, 3))
    assert digest(cut.weights | cut.optimiser) == digest(through.weights | through.optimiser)
    assert cut.losses == through.losses[3:]


def test_what_does_not_fit_is_refused() -> None:
    policy, given = Policy([0.0] * SIZE), {"only": STREAM}
    with pytest.raises(ConfigError, match="reads the models"):
        Reinforce(recipe(params={"kl": 0.5}), policy, given, {})
    with pytest.raises(ConfigError, match="a batch needs two"):
        Reinforce(recipe(batch=1), policy, given, {})
    with pytest.raises(DataError, match="may have 6 tokens, the context is 5"):
        Reinforce(recipe(context=5), policy, given, {})
    with pytest.raises(SourceChangedError):
        Reinforce(recipe(), policy, {"only": STREAM[::-1].copy()}, {})
    two = np.asarray([*STREAM, 0, 1, -1 - RIGHT, -1 - 4], np.int32)
    with pytest.raises(DataError, match="end with different tokens"):
        Reinforce(recipe(two), policy, {"only": two}, {})
    with pytest.raises(ConfigError, match="vectors do not serve the objective lora@1"):
        vectors(params={"objective": "lora@1"})
