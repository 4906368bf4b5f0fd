"""The models of a bake as recipes: a function of its settings and of what was recorded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.trajectories.sampled import Sample, Sampled
from phases.bake import prompts
from phases.bake.config import BakeConfig
from phases.bake.events import BakeState, Started, Submitted
from phases.bake.prompts import Stage
from studies import training_plan
from studies.making.events import Making
from weights.recipes import Algorithm, Train, Transform
from weights.training.trajectories import BAKED, OTHERS

#: The given model in float32, and the model at the end of the training.
PARENT, FULL = "parent", "full"
#: Key of all random draws; those of later stages have the stage's number.
PURPOSE = "bake"


@dataclass(frozen=True)
class Candidate:
    """A model of a stage, one of which is chosen."""

    recipe: Making
    #: Share of the way to the trained model, or of its steps.
    share: float
    #: True if the training was stopped there, false if the weights are interpolated.
    early: bool = False
    #: The training that it is, or is a rounding of; None if it lies between two models.
    training: Train | None = None


def parent(started: Started) -> Transform:
    """Return the recipe of the given model in float32."""
    return training_plan.as_float32(started)


def canary(submitted: Submitted, started: Started, digests: Mapping[str, str]) -> Train:
    """Return the training by which a machine is recognised, before any reply is sampled.

    `digests` are those of the streams of trajectories to train on. In runs that settle no division of
    steps, which are earlier ones, it is a training on ordinary text.
    """
    first, rate = parent(started).id, submitted.config.rate
    if started.accumulation is None:
        return training_plan.training(submitted, started, PURPOSE, first, "lm@1", {}, rate)
    pursued = bool(submitted.config.pursuit)
    stage = Stage(1, submitted.config.prompts, again=pursued)
    return full(submitted, started, stage, first, digests)


def sample(state: BakeState) -> Sample:
    """Return the task that lets the given model write all of its trajectories."""
    wanted = prompts.streams(state.submitted.config, state.started.beyond)
    return Sample(parent(state.started).id, tuple(wanted))


def sample_again(stage: Stage, writer: Making) -> Sample:
    """Return the task that lets the result of the stage before write what the stage trains on."""
    return Sample(writer.id, tuple(prompts.pursued(stage)))


def sampled(state: BakeState) -> Sampled | None:
    """Return what the given model wrote; None before it has."""
    if state.started is None:
        return None
    found: Any = state.answers.get(sample(state).key)
    return found


def full(
    submitted: Submitted, started: Started, stage: Stage, before: str, digests: Mapping[str, str]
) -> Train:
    """Return the recipe of the model at the end of a stage's training.

    `before` is the id of the model that the training begins with, `digests`: stream → its digest.
    """
    config, given = submitted.config, parent(started).id
    rehearses = bool(prompts.rehearsed(config))
    params = {
        "neutral": config.neutral_weight,
        "others": config.others_weight if rehearses else 0.0,
        "top": config.top,
    }
    inputs = {"teacher": before, "guard": given} if stage.again else {"teacher": given}
    purpose = PURPOSE if stage.number == 1 else f"{PURPOSE}-{stage.number}"
    rate, watch = config.rate, config.divergence
    objective, params = training_plan.adapted(config, "bake@1", params)
    base = training_plan.training(
        submitted, started, purpose, before, objective, params, rate, inputs, watch
    )
    own = [stage.named(BAKED), *([OTHERS] if rehearses else [])]
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


def name(share: float, number: int = 1, early: bool = False, rounded: bool = False) -> str:
    """Return the name of a candidate of a stage; at 1 it is the trained model itself, or `rounded`."""
    whole = share == 1.0 and not rounded
    own = FULL if whole else f"{'stop' if early else 'strength'}-{share!r}"
    return own if number == 1 else f"{PURPOSE}-{number}-{own}"


def begin(started: Started, before: Making | None) -> Making:
    """Return the model in float32 that a stage's training begins with.

    `before` is the result of the stage before it, None for the first. Results of half precision are
    not what trainings read.
    """
    if before is None:
        return parent(started)
    if started.dtype is None:
        return before
    return Transform(operation="float32@1", inputs={"of": before.id})


def candidates(
    config: BakeConfig, stage: Stage, start: Making, end: Train, dtype: str | None
) -> dict[str, Candidate]:
    """Return name → candidate of a stage, the trained model first, then stops, then interpolations.

    The trained model is one of them if 1 is among the strengths; it is made in any case. `dtype` is
    `Started.dtype`: with one every candidate is rounded to it, as a place on a line has the dtype of
    the line's start. What is measured and chosen is then what is written.
    """
    found = {}
    origin = start.id if dtype is None else start.inputs["of"]
    for share in config.stops:
        early = end.to(steps(config, share))
        recipe = early if dtype is None else _line(origin, early, 1.0)
        found[name(share, stage.number, True)] = Candidate(recipe, share, True, early)
    for share in config.strengths:
        whole = share == 1.0 and dtype is None
        recipe = end if whole else _line(origin, end, share)
        label = name(share, stage.number, rounded=dtype is not None)
        found[label] = Candidate(recipe, share, training=end if share == 1.0 else None)
    return found


def _line(start: str, end: Train, place: float) -> Transform:
    """Return the recipe of the model at a place between the model of the id `start` and `end`."""
    inputs = {"start": start, "end": end.id}
    return Transform(operation="interpolate@1", inputs=inputs, params={"place": place})


def steps(config: BakeConfig, share: float) -> int:
    """Return the step that is a share of the training."""
    return round(share * config.steps)
