"""The trainings of a curriculum run as recipes: a function of settings, pins and a chosen mix. Pure.

Each segment is a training of its own, whose recipe has its mix; it carries on the optimiser of the
segment before, within one schedule for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phases.curriculum.events import MixChosen, Started, Submitted
from phases.curriculum.settings import CurriculumConfig
from runs.errors import ConfigError
from studies.training_plan import as_float32, reading
from weights.recipes import Algorithm, Train

#: The given model in float32, which all arms begin with.
START = "start"
#: Key of the random draws of all trainings.
PURPOSE = "curriculum"
OBJECTIVE = "answers@1"
#: With noise or a self-model beside the answers.
BESIDE = "answers@2"


def bounds(config: CurriculumConfig, context: int) -> list[int]:
    """Return the step at which each segment begins, and the number of all steps."""
    count = config.steps_of(context)
    return [count * number // config.segments for number in range(config.segments + 1)]


def tokens(config: CurriculumConfig, context: int) -> list[int]:
    """Return the tokens that an arm has read when each segment begins, and at its end."""
    return [step * config.batch * context for step in bounds(config, context)]


def check_length(config: CurriculumConfig, context: int) -> None:
    """Raise ConfigError if a segment would have no step."""
    at = bounds(config, context)
    if len(set(at)) < len(at):
        raise ConfigError(
            f"{config.tokens:,} tokens are {at[-1]} steps of {config.batch} windows of {context}: too "
            f"few for {config.segments} segments. Give more tokens, or fewer segments."
        )


def name(config: CurriculumConfig, arm: str, segment: int) -> str:
    """Return the name of the model after a segment, counted from 0; the last has the arm's."""
    return arm if segment + 1 == config.segments else f"{arm}-{segment + 1}"


def segment(
    submitted: Submitted,
    started: Started,
    chosen: MixChosen,
    before: str | None,
    dreamt: Mapping[str, str] = {},
) -> Train:
    """Return the recipe of a segment; `before` is the id of the training that it carries on.

    `dreamt` are the digests of streams of dreams by name.
    """
    config, number = submitted.config, chosen.segment
    at = bounds(config, started.context)
    first = before or as_float32(started).id
    cells = {name: share for name, share in chosen.mix.items() if name not in dreamt}
    whole = reading(submitted, started, cells, PURPOSE, first, OBJECTIVE, config.rate)
    digests = {name: dreamt[name] for name in chosen.mix if name in dreamt}
    fields = {
        "data": chosen.mix,
        "data_digests": whole.data_digests | digests,
        "carries": before is not None,
        "first": at[number],
        "upto": at[number + 1],
        "divergence": config.divergence,
    }
    return whole.model_copy(update=fields | _beside(config, started, chosen, whole.schedule))


def _beside(
    config: CurriculumConfig, started: Started, chosen: MixChosen, schedule: Algorithm
) -> dict[str, Any]:
    """Return the fields of a recipe that chaos and a self-model change.

    During a burst a leap of the loss is wanted: only numbers that are not finite end such a training.
    """
    first, last = bounds(config, started.context)[chosen.segment :][:2]
    until = first + max(1, round(config.burst_share * (last - first)))
    noise = self_model = None
    fields: dict[str, Any] = {}
    if "chaos" in chosen.added:
        span = {"first": first, "upto": until}
        if config.burst_noise:
            noise = {"scale": config.burst_noise, **span}
        params = {**schedule.params, "factor": config.burst_rate, **span}
        fields |= {
            "schedule": Algorithm(name="cosine-burst@1", params=params),
            "divergence": None,
        }
    if "self_model" in chosen.added:
        self_model = {"weight": config.self_weight, "layer": config.self_layer}
    if noise or self_model:
        fields |= {"objective": BESIDE, "params": {"noise": noise, "self_model": self_model}}
    return fields
