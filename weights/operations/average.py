"""Operation `average`: a weighted sum of models, such as the snapshots of one training.

An average of a training's snapshots replaces the decay of its learning rate. Pure. Source: Tian et al.
2025, "WSM: Decay-Free Learning Rate Schedule via Checkpoint Merging", arXiv 2507.17634, section 3. A
training whose rate stays at its peak has snapshots θ₀ … θₙ₋₁. The average Σ cⱼθⱼ is θ₀ plus the steps
between θⱼ₋₁ and θⱼ, scaled by wⱼ = cⱼ + … + cₙ₋₁. A falling rate scales the steps in the same way,
though its gradients differ. So a decay w₁ ≥ … ≥ wₙ₋₁ gives

    c₀ = 1 − w₁,   cⱼ = wⱼ − wⱼ₊₁,   cₙ₋₁ = wₙ₋₁

With the linear decay wⱼ = 1 − j/n all cⱼ are 1/n: the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from pydantic import Field

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.recipes import Frozen, Train, Transform
from agent_forge.weights.tensors import Tensors

#: Decay → function from the passed share of the decay to the rate's share of its peak.
DECAYS: Mapping[str, Callable[[float], float]] = {
    "linear": lambda passed: 1.0 - passed,
    "cosine": lambda passed: 0.5 * (1.0 + math.cos(math.pi * passed)),
    "1-sqrt": lambda passed: 1.0 - math.sqrt(passed),
}
#: Last share of a training's steps that the snapshots are spread over.
SPREAD = 0.2


def factors(decay: str, count: int) -> tuple[float, ...]:
    """Return a tuple of the factors cⱼ of `count` snapshots, the earliest first; they add up to 1."""
    if decay == "linear":
        return (1.0 / count,) * count
    left = [1.0, *(DECAYS[decay](place / count) for place in range(1, count)), 0.0]
    return tuple(before - after for before, after in pairwise(left))


def snapshots(training: Train, count: int) -> list[Train]:
    """Return a list of the recipes of `count` evenly spaced snapshots, earliest first, last at the end.

    Raises ConfigError if the training has too few steps.
    """
    steps = training.upto - training.first
    apart = max(1, round(steps * SPREAD / count))
    if (count - 1) * apart >= steps:
        raise ConfigError(
            f"average asks for {count} snapshots, and the {training.purpose} training has {steps} "
            "steps: take fewer snapshots, or train longer."
        )
    return [training.to(training.upto - apart * place) for place in reversed(range(count))]


def averaged(training: Train, count: int, decay: str) -> Transform:
    """Return the recipe, a Transform, of the average of a training's last `count` snapshots."""
    return of(snapshots(training, count), factors(decay, count))


def of(models: Sequence[Train], shares: Sequence[float]) -> Transform:
    """Return the recipe, a Transform, of Σ share · model, with the models in this order."""
    inputs = {role(place): model.id for place, model in enumerate(models)}
    return Transform(operation="average@1", inputs=inputs, params={"factors": list(shares)})


def role(place: int) -> str:
    """Return the role of the snapshot at a place, from 0: "model-0000"; roles sort by place."""
    return f"model-{place:04}"


class Factors(Frozen):
    """The factors of the models "model-0000", … in order."""

    factors: tuple[float, ...] = Field(min_length=1)


class Average:
    """Weighted sum of all tensors, each in float64 and rounded once to the first model's dtype.

    Multiplications and additions are separate operations in the order of the models, so the bits are
    the same on every processor.
    """

    Params = Factors

    def apply(self, inputs: Mapping[str, Tensors], params: Factors, seed: int) -> Tensors:
        """Return the model Σ factor · model, with the first model's config and dtypes.

        Raises ConfigError for other roles, SourceError for other tensors.
        """
        roles = [role(place) for place in range(len(params.factors))]
        if sorted(inputs) != roles:
            raise ConfigError(f"average reads {roles}, not {sorted(inputs)}")
        first, *other_models = (inputs[name] for name in roles)
        for other in other_models:
            if {n: t.shape for n, t in other.weights.items()} != {
                n: t.shape for n, t in first.weights.items()
            }:
                raise SourceError("average: the models have other tensors, or of other shapes")
        averages = {}
        for name, tensor in first.weights.items():
            if not tensor.is_floating_point():
                averages[name] = tensor
                continue
            total = tensor.double() * params.factors[0]
            for factor, other in zip(params.factors[1:], other_models, strict=True):
                total += other.weights[name].double() * factor
            averages[name] = total.to(tensor.dtype)
        return Tensors(first.config, averages)
