"""The models of a bake as recipes: a function of its settings and of what was recorded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluation.given_model_runs import training_plan
from evaluation.trajectories.sampled import Sample, Sampled
from phases.bake import prompts
from phases.bake.events import BakeState, Started, Submitted
from weights.making.events import Making
from weights.recipes import Algorithm, Train, Transform
from weights.training.trajectories import BAKED, OTHERS

#: The given model in float32, and the model at the end of the training.
PARENT, FULL = "parent", "full"
#: Key of all random draws.
PURPOSE = "bake"


def parent(started: Started) -> Transform:
    """Return the recipe of the given model in float32."""
    return Transform(operation="float32@1", inputs={"of": started.model.recipe_id})


def canary(submitted: Submitted, started: Started, digests: Mapping[str, str]) -> Train:
    """Return the training by which a machine is recognised, before any reply is sampled.

    `digests` are those of the streams of trajectories to train on. In runs that settle no division of
    steps, which are earlier ones, it is a training on ordinary text.
    """
    first, rate = parent(started).id, submitted.config.rate
    if started.accumulation is None:
        return training_plan.training(submitted, started, PURPOSE, first, "lm@1", {}, rate)
    return _baking(submitted, started, digests)


def sample(state: BakeState) -> Sample:
    """Return the task that lets the given model write all trajectories."""
    return Sample(parent(state.started).id, prompts.streams(state.submitted.config))


def sampled(state: BakeState) -> Sampled | None:
    """Return what the given model wrote; None before it has."""
    if state.started is None:
        return None
    found: Any = state.answers.get(sample(state).key)
    return found


def full(state: BakeState, written: Sampled) -> Train:
    """Return the recipe of the baked model at full strength."""
    digests = {name: one.digest for name, one in written.streams.items()}
    return _baking(state.submitted, state.started, digests)


def _baking(submitted: Submitted, started: Started, digests: Mapping[str, str]) -> Train:
    """Return the recipe of a training on trajectories; `digests`: stream → its digest."""
    config, first = submitted.config, parent(started).id
    rehearses = bool(prompts.rehearsed(config))
    params = {
        "neutral": config.neutral_weight,
        "others": config.others_weight if rehearses else 0.0,
        "top": config.top,
    }
    teacher, rate, watch = {"teacher": first}, config.rate, config.divergence
    base = training_plan.training(
        submitted, started, PURPOSE, first, "bake@1", params, rate, teacher, watch
    )
    own = [BAKED, *([OTHERS] if rehearses else [])]
    ordinary = {name: share for name, share in base.data.items() if name not in config.contexts}
    text = ordinary if config.neutral_weight else {}
    changes = {
        "data": {**text, **dict.fromkeys(own, 1.0)},
        "data_digests": {
            **{name: started.streams[name] for name in text},
            **{name: digests[name] for name in own},
        },
        "context": config.neutral_tokens,
        "optimiser": _undecayed(base.optimiser),
    }
    return Train.model_validate({**base.model_dump(), **changes})


def _undecayed(optimiser: Algorithm) -> Algorithm:
    """Return the optimiser without weight decay, which would pull away from the given model."""
    return Algorithm(name=optimiser.name, params={**optimiser.params, "weight_decay": 0.0})


def name(strength: float) -> str:
    """Return the name of the model of a strength; at 1 it is the trained model itself."""
    return FULL if strength == 1.0 else f"strength-{strength!r}"


def strengths(state: BakeState, written: Sampled) -> dict[str, Making]:
    """Return name → recipe for each strength: at 1 the trained model, else one on the line to it."""
    start, end = parent(state.started), full(state, written)
    found: dict[str, Making] = {}
    for strength in state.submitted.config.strengths:
        inputs, place = {"start": start.id, "end": end.id}, {"place": strength}
        line = Transform(operation="interpolate@1", inputs=inputs, params=place)
        found[name(strength)] = end if strength == 1.0 else line
    return found


def recipes(state: BakeState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes, as far as it is known now."""
    found: dict[str, Making] = {PARENT: parent(state.started)}
    written = sampled(state)
    if written is not None:
        found |= {FULL: full(state, written), **strengths(state, written)}
    return found
