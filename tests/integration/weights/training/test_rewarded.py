"""Replies with rewards or preferences: loss and gradient by hand, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import complete
from agent_forge.weights.training.loop import segment
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.objectives.preference import Preference
from agent_forge.weights.training.objectives.rewarded import Rewarded
from agent_forge.weights.training.windows import Ids, Trajectory, advantages, pack, pairs, stream_digest
from testing.models import toy_training
from testing.shares import one_quick
from tests.integration.weights.test_training import bits

#: Two requests with three replies each, of which one and two are right; of a third all are.
REPLIES = (
    ((3, 5, 7), ((1,), (2, 4), (9, 8, 6))),
    ((2, 2), ((5, 1), (5,), (7, 7))),
    ((4,), ((1,), (1,), (2,))),
)
REWARDS = (1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0)
#: Steps of a training that is longer.
EIGHT = {"steps": 8, "upto": 8}
#: Of a reward 1 among 0, 0: 1; of a 0 beside 1 and 0: −1/2; and so on.
GAINS = (1.0, -0.5, -0.5, 0.5, 0.5, -1.0, 0.0, 0.0, 0.0)


def ids(*numbers: int) -> Ids:
    return np.asarray(numbers, np.int32)


def trajectories() -> list[Trajectory]:
    return [
        Trajectory(number, ids(*request), ids(*request), ids(*reply))
        for number, (request, replies) in enumerate(REPLIES)
        for reply in replies
    ]


def streams() -> dict[str, Ids]:
    return {"own/1": pack(trajectories())}


def recipe(**changes: Any) -> Train:
    """A complete recipe of two steps of six rows: each has all replies that teach."""
    params = {"samples": 3, "rewards": list(REWARDS), "kl": 0.5, **changes.pop("params", {})}
    fields: dict[str, Any] = {
        "objective": "reinforce@2",
        "params": params,
        "inputs": {"writer": toy_training.INIT.id},
        "data": {"own/1": 1.0},
        "data_digests": {name: stream_digest(stream) for name, stream in streams().items()},
        "batch": 6,
        "steps": 2,
        "upto": 2,
        **changes,
    }
    return complete(toy_training.recipe(**fields))


def objective(training: Train, module: torch.nn.Module, **further: Ids) -> Rewarded:
    inputs = {"writer": toy_training.model()}
    objective_class = Preference if training.objective == "preference@1" else Rewarded
    return objective_class(training, module, {**streams(), **further}, inputs)


def preferring(**changes: Any) -> Train:
    """A complete recipe of two steps of two pairs: each has all pairs."""
    return recipe(**{"objective": "preference@1", "batch": 2, **changes})


def moved(size: float = 0.02) -> Any:
    """The writer with other weights."""
    module = modules.build(toy_training.model())
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator)
    return module


def logs(module: Any, request: Any, reply: Any) -> torch.Tensor:
    """Log p of a reply's tokens, by transformers alone."""
    row = torch.tensor([[*map(int, request), *map(int, reply)]])
    every = module(input_ids=row).logits[0].float().log_softmax(-1)
    places = torch.arange(len(request) - 1, row.shape[1] - 1)
    return every[places, row[0, len(request) :]]


def test_an_advantage_is_a_reward_minus_the_mean_of_the_others() -> None:
    assert advantages(REWARDS, 3) == pytest.approx(GAINS)
    assert advantages([0.1] * 3, 3) == [0.0] * 3  # without rounding


def test_the_best_reply_is_preferred_to_the_worst_and_so_on_while_they_differ() -> None:
    assert pairs(REWARDS, 3) == [(0, 2), (3, 5)]
    assert pairs([0.0, 2.0, 1.0, 3.0, 1.0, 1.0, 1.0, 1.0], 4) == [(3, 0), (1, 2)]
    assert pairs([1.0, 0.0, 0.0, 0.0], 4) == [(0, 3)]


def test_the_loss_of_preferences_is_that_of_the_papers_own_lines() -> None:
    """Appendix B's: log σ(β ((log π(w) − log π(v)) − (log π_0(w) − log π_0(v)))), by transformers."""
    module, training = moved(0.2), preferring(params={"kl": 0.7})
    writer, rows = modules.build(toy_training.model()).eval(), trajectories()
    with torch.no_grad():
        new, old = (
            [float(logs(m, row.plain, row.reply).sum()) for row in rows] for m in (module, writer)
        )
    margins = [(new[w] - new[v]) - (old[w] - old[v]) for w, v in ((0, 2), (3, 5))]
    expected = sum(math.log1p(math.exp(-0.7 * margin)) for margin in margins) / 2
    built = objective(training, module)
    assert built.loss(built.batch(0)).item() == pytest.approx(expected, rel=1e-4)
    assert abs(expected - math.log(2)) > 0.01


def test_at_the_writer_preferences_move_both_replies_by_half_the_weight() -> None:
    """The loss is log 2, the gradient −β/2 · ∇(log π(w) − log π(l)), the mean over pairs."""
    module = modules.build(toy_training.model())
    built, rows = objective(preferring(params={"kl": 0.7}), module), trajectories()
    loss = built.loss(built.batch(0))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2), abs=1e-5)
    gradients = {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    sums = [logs(module, row.plain, row.reply).sum() for row in rows]
    (-0.35 * ((sums[0] - sums[2]) + (sums[3] - sums[5])) / 2).backward()
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(gradients[name], parameter.grad, atol=1e-6), name


@pytest.mark.parametrize("kl", [0.0, 0.5])
def test_the_loss_is_that_of_clipped_ratios_and_the_divergence(kl: float) -> None:
    """Reply by reply and token by token in Python, for a model beside the writer."""
    module, training = moved(), recipe(params={"kl": kl})
    writer = modules.build(toy_training.model()).eval()
    part = objective(training, module).batch(0)
    assert sorted(part["gains"].flatten().tolist()) == pytest.approx(
        sorted(gain for gain in GAINS if gain)
    )
    expected, clipped = 0.0, 0
    for trajectory, gain in zip(trajectories(), GAINS, strict=True):
        if not gain:
            continue
        with torch.no_grad():
            new = logs(module, trajectory.plain, trajectory.reply).tolist()
            old = logs(writer, trajectory.plain, trajectory.reply).tolist()
        for a, b in zip(new, old, strict=True):
            ratio = math.exp(a - b)
            bounded = min(max(ratio, 0.8), 1.2)
            clipped += bounded != ratio
            expected += min(ratio * gain, bounded * gain) - kl * (ratio - 1 - (a - b))
    assert clipped
    loss = objective(training, module).loss(part)
    assert loss.item() == pytest.approx(-expected / 6, rel=1e-4)


def test_at_the_writer_the_gradient_is_reinforces() -> None:
    """The gradient of −Σ A Σ log p / N, whatever the weight of the divergence; the loss is 0."""
    module = modules.build(toy_training.model())
    built = objective(recipe(), module)
    loss = built.loss(built.batch(0))
    loss.backward()
    mine = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    pairs = [(t, gain) for t, gain in zip(trajectories(), GAINS, strict=True) if gain]
    surrogate = sum(-gain * logs(module, t.plain, t.reply).sum() for t, gain in pairs) / 6
    assert isinstance(surrogate, torch.Tensor)
    surrogate.backward()
    assert loss.item() == pytest.approx(-sum(g * len(t.reply) for t, g in pairs) / 6, abs=1e-5)
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(mine[name], parameter.grad, atol=1e-6), name


def test_the_divergence_is_that_of_the_writer_on_average() -> None:
    """Over every reply of one token, weighed by the writer, it is KL(writer ‖ model) exactly."""
    module, writer, request = moved(0.1), modules.build(toy_training.model()).eval(), ids(3, 5, 7)
    row = torch.tensor([request.tolist()])
    with torch.no_grad():
        new, old = (m(input_ids=row).logits[0, -1].float().log_softmax(-1) for m in (module, writer))
    weights, exact = old.exp(), float((old.exp() * (old - new)).sum())
    estimates = list[float]()
    for token in range(toy_training.VOCABULARY):
        stream = pack([Trajectory(0, request, request, ids(token))] * 2)
        losses = [
            objective(
                recipe(
                    params={"samples": 2, "rewards": [1.0, 0.0], "kl": kl},
                    data_digests={"own/1": stream_digest(stream)},
                    batch=2,
                ),
                module,
                **{"own/1": stream},
            )
            for kl in (0.0, 1.0)
        ]
        without, with_kl = (built.loss(built.batch(0)).item() for built in losses)
        estimates.append(with_kl - without)
    assert exact > 0.01
    assert float(weights @ torch.tensor(estimates)) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("make", [recipe, preferring])
@pytest.mark.parametrize(
    "changes", one_quick({"precision": "bfloat16", "accumulation": 2}, {}, {"checkpointing": True})
)
def test_a_training_that_is_cut_has_the_same_bits(make: Any, changes: dict[str, Any]) -> None:
    training, start = make(**changes), toy_training.model()
    inputs = {"writer": toy_training.model()}
    whole = segment(training, start, None, streams(), 0, 2, inputs=inputs)
    half = segment(training, start, None, streams(), 0, 1, inputs=inputs)
    rest = segment(
        training, Tensors(start.config, half.weights), half.optimiser, streams(), 1, 2, inputs=inputs
    )
    assert bits(rest) == bits(whole)


@pytest.mark.parametrize("training", [recipe(params={"kl": 0.0}, **EIGHT), preferring(**EIGHT)])
def test_right_replies_become_likelier_than_wrong_ones(training: Train) -> None:
    """After some steps; each epoch has every reply that teaches once."""
    steps = training.steps
    inputs = {"writer": toy_training.model()}
    result = segment(training, toy_training.model(), None, streams(), 0, steps, inputs=inputs)
    models = [toy_training.model(), Tensors(toy_training.model().config, result.weights)]
    margins = list[float]()
    for model in models:
        module = modules.build(model).eval()
        with torch.no_grad():
            margins.append(
                sum(
                    gain * float(logs(module, t.plain, t.reply).sum())
                    for t, gain in zip(trajectories(), GAINS, strict=True)
                )
            )
    assert margins[1] > margins[0]


def test_what_does_not_fit_is_refused() -> None:
    module = modules.build(toy_training.model())

    def refused(error: type[Exception], match: str, **changes: Any) -> None:
        with pytest.raises(error, match=match):
            objective(recipe(**changes), module)

    refused(DataError, "9 replies and 8 rewards", params={"rewards": list(REWARDS[:8])})
    refused(DataError, "and 2 replies to a request", params={"samples": 2})
    refused(DataError, "the same reward: they teach nothing", params={"rewards": [1.0] * 9})
    refused(DataError, "have 6 tokens, the context is 4", context=4)
    refused(DataError, "the same reward", objective="preference@1", params={"rewards": [1.0] * 9})
    refused(
        ConfigError, "kl: Input should be greater than 0", objective="preference@1", params={"kl": 0.0}
    )
    refused(ConfigError, r"reads the models \['writer'\], not \[\]", inputs={})
