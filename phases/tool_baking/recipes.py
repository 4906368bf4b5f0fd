"""Recipes and tasks of a baking run: functions of its settings and of what was recorded. Pure."""

from __future__ import annotations

from evaluation.trajectories.sampled import Sampled
from phases.tool_baking.events import CycleSample, Started, Submitted
from phases.tool_baking.settings import BakingConfig, Cycle
from studies import training_plan
from studies.making.events import Making
from studies.training_plan import as_float32
from weights.recipes import Algorithm, Train, Transform
from weights.training.trajectories import BAKED, OTHERS

#: The given model in float32.
START = "start"
#: Key of all random draws.
PURPOSE = "baking"
#: Streams to measure on: turns under the prompt of the tools.
HELD, HELD_TEST = "baking/selection", "baking/test"
#: The cycle's name of the task that writes them.
HOLDING = "held"


def name(number: int, whole: bool = False) -> str:
    """Return the name of an iteration's model; `whole`: of the trained one, at strength 1."""
    return f"iteration-{number}-full" if whole else f"iteration-{number}"


def canary(submitted: Submitted, started: Started) -> Train:
    """Return a training on ordinary text, by which a machine is recognised before any sampling."""
    first, rate = as_float32(started).id, submitted.config.rate
    objective, params = training_plan.adapted(submitted.config, "lm@1", {})
    return training_plan.training(submitted, started, PURPOSE, first, objective, params, rate)


def sample(config: BakingConfig, cycle: Cycle, start: Making) -> CycleSample:
    """Return the task that lets a model write the turns of an iteration."""
    streams = (BAKED, OTHERS) if config.rehearsed else (BAKED,)
    return CycleSample(start.id, streams, cycle)


def held(started: Started) -> CycleSample:
    """Return the task that lets the given model write the turns to measure on."""
    return CycleSample(as_float32(started).id, (HELD, HELD_TEST), HOLDING)


def full(submitted: Submitted, started: Started, start: Making, written: Sampled) -> Train:
    """Return the recipe of an iteration's training, whose teacher is the model it begins with."""
    config = submitted.config
    streams = [BAKED, *([OTHERS] if config.rehearsed else [])]
    weight = config.others_weight if config.rehearsed else 0.0
    params = {"neutral": config.neutral_weight, "others": weight, "top": None}
    objective, params = training_plan.adapted(config, "bake@1", params)
    base = training_plan.training(
        *(submitted, started, PURPOSE, start.id, objective, params, config.rate),
        {"teacher": start.id},
    )
    text = base.data if config.neutral_weight else {}
    digests = {name: started.streams[name] for name in text}
    undecayed = {**base.optimiser.params, "weight_decay": 0.0}
    changes = {
        "data": {**text, **dict.fromkeys(streams, 1.0)},
        "data_digests": digests | {name: written.streams[name].digest for name in streams},
        "context": config.neutral_tokens,
        "optimiser": Algorithm(name=base.optimiser.name, params=undecayed),
    }
    return Train.model_validate({**base.model_dump(), **changes})


def half(config: BakingConfig, start: Making, end: Train) -> Transform:
    """Return the recipe of an iteration's model, on the way from its start to the trained model."""
    inputs, place = {"start": start.id, "end": end.id}, {"place": config.strength}
    return Transform(operation="interpolate@1", inputs=inputs, params=place)
