"""The models of a bake as recipes: a function of its settings and of what was recorded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evaluation.trajectories.sampled import Sample
from phases.prompt_baking import prompts
from phases.prompt_baking.events import Started, Submitted
from phases.prompt_baking.prompts import Stage
from phases.prompt_baking.settings import BakeConfig
from studies.given_dtype import FLOAT32
from studies.making.events import Making
from studies.training_plan import adapted, as_float32, training
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


@dataclass
class Course:
    """A stage that has begun: its models, and what it has chosen."""

    stage: Stage
    #: The model in float32 that its training begins with.
    start: Making
    #: The model at the end of its training; None before its replies are sampled.
    full: Train | None = None
    #: Name → candidate.
    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    #: The candidate that is its result; None before all are measured.
    best: str | None = None

    def plan(self, submitted: Submitted, started: Started, digests: Mapping[str, str]) -> None:
        """Settle its models; `digests` are those of the streams that it can train on, by name."""
        config = submitted.config
        self.full = full(submitted, started, self.stage, self.start.id, digests)
        self.candidates = candidates(config, self.stage, self.start, self.full, started.dtype)

    def models(self, started: Started) -> dict[str, Making]:
        """Return name → recipe of all that it makes, as far as it is known; each after its inputs."""
        number, models = self.stage.number, dict[str, Making]()
        if number > 1 and started.dtype is not None:
            models[f"{PURPOSE}-{number}-start"] = self.start
        if self.full is not None:
            models[name(1.0, number)] = self.full
        for label, candidate in self.candidates.items():
            stop = candidate.training if candidate.early else None
            if stop is not None and stop != candidate.recipe:
                models[f"{label}{FLOAT32}"] = stop
            models[label] = candidate.recipe
        return models


def canary(submitted: Submitted, started: Started, digests: Mapping[str, str]) -> Train:
    """Return the training by which a machine is recognised, before any reply is sampled.

    `digests` are those of the streams of trajectories to train on. In runs that settle no division of
    steps, which are earlier ones, it is a training on ordinary text.
    """
    first, rate = as_float32(started).id, submitted.config.rate
    if started.accumulation is None:
        return training(submitted, started, PURPOSE, first, "lm@1", {}, rate)
    pursued = bool(submitted.config.pursuit)
    stage = Stage(1, submitted.config.prompts, again=pursued)
    return full(submitted, started, stage, first, digests)


def sample(config: BakeConfig, started: Started) -> Sample:
    """Return the task that lets the given model write all of its trajectories."""
    return Sample(as_float32(started).id, tuple(prompts.streams(config, started.beyond)))


def sample_again(course: Course) -> Sample:
    """Return the task that lets the result of the stage before write what the stage trains on."""
    return Sample(course.start.id, tuple(prompts.pursued(course.stage)))


def full(
    submitted: Submitted, started: Started, stage: Stage, before: str, digests: Mapping[str, str]
) -> Train:
    """Return the recipe of the model at the end of a stage's training.

    `before` is the id of the model that the training begins with, `digests`: stream → its digest.
    """
    config, base_id = submitted.config, as_float32(started).id
    rehearses = bool(prompts.rehearsed(config))
    params = {
        "neutral": config.neutral_weight,
        "others": config.others_weight if rehearses else 0.0,
        "top": config.top,
    }
    inputs = {"teacher": before, "guard": base_id} if stage.again else {"teacher": base_id}
    purpose = PURPOSE if stage.number == 1 else f"{PURPOSE}-{stage.number}"
    rate, watch = config.rate, config.divergence
    objective, params = adapted(config, "bake@1", params)
    base = training(submitted, started, purpose, before, objective, params, rate, inputs, watch)
    streams = [stage.named(BAKED), *([OTHERS] if rehearses else [])]
    ordinary = {name: share for name, share in base.data.items() if name not in config.contexts}
    text = ordinary if config.neutral_weight else {}
    changes = {
        "data": {**text, **dict.fromkeys(streams, 1.0)},
        "data_digests": {
            **{name: started.streams[name] for name in text},
            **{name: digests[name] for name in streams},
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
    label = FULL if whole else f"{'stop' if early else 'strength'}-{share!r}"
    return label if number == 1 else f"{PURPOSE}-{number}-{label}"


def begin(started: Started, before: Making | None) -> Making:
    """Return the model in float32 that a stage's training begins with.

    `before` is the result of the stage before it, None for the first. Results of half precision are
    not what trainings read.
    """
    if before is None:
        return as_float32(started)
    if started.dtype is None:
        return before
    return Transform(operation="float32@1", inputs={"of": before.id})


def candidates(
    config: BakeConfig, stage: Stage, start: Making, end: Train, dtype: str | None
) -> dict[str, Candidate]:
    """Return name → candidate of a stage: stops, then interpolations, with the trained model at 1.

    The trained model is one of them if 1 is among the strengths; it is made in any case. `dtype` is
    `Started.dtype`: with one every candidate is rounded to it, as a place on a line has the dtype of
    the line's start. What is measured and chosen is then what is written.
    """
    models = {}
    origin = start.id if dtype is None else start.inputs["of"]
    for share in config.stops:
        early = end.to(round(share * config.steps))
        recipe = early if dtype is None else _line(origin, early, 1.0)
        models[name(share, stage.number, True)] = Candidate(recipe, share, True, early)
    for share in config.strengths:
        whole = share == 1.0 and dtype is None
        recipe = end if whole else _line(origin, end, share)
        label = name(share, stage.number, rounded=dtype is not None)
        models[label] = Candidate(recipe, share, training=end if share == 1.0 else None)
    return models


def _line(start: str, end: Train, place: float) -> Transform:
    """Return the recipe of the model at a place between the model of the id `start` and `end`."""
    inputs = {"start": start, "end": end.id}
    return Transform(operation="interpolate@1", inputs=inputs, params={"place": place})
