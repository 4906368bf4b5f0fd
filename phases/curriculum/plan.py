"""The trainings of a curriculum run as recipes: a function of settings, pins and chosen mixes. Pure.

Each segment is a training of its own, whose recipe has its mix; it carries on the optimiser of the
segment before, within one schedule for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phases.curriculum import dreams
from phases.curriculum.config import CurriculumConfig
from phases.curriculum.dreams import Dream
from phases.curriculum.events import CurriculumState, Dreamed, MixChosen, Started, Submitted
from runs.errors import ConfigError
from studies import given_dtype
from studies.making.events import Making
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
    given = {name: share for name, share in chosen.mix.items() if name not in dreamt}
    whole = reading(submitted, started, given, PURPOSE, first, OBJECTIVE, config.rate)
    digests = {name: dreamt[name] for name in chosen.mix if name in dreamt}
    own = {
        "data": chosen.mix,
        "data_digests": whole.data_digests | digests,
        "carries": before is not None,
        "first": at[number],
        "upto": at[number + 1],
        "divergence": config.divergence,
    }
    return whole.model_copy(update=own | _beside(config, started, chosen, whole.schedule))


def _beside(
    config: CurriculumConfig, started: Started, chosen: MixChosen, schedule: Algorithm
) -> dict[str, Any]:
    """Return the fields of a recipe that chaos and a self-model change.

    During a burst a leap of the loss is wanted: only numbers that are not finite end such a training.
    """
    first, last = bounds(config, started.context)[chosen.segment :][:2]
    until = first + max(1, round(config.burst_share * (last - first)))
    noise = own = None
    found: dict[str, Any] = {}
    if "chaos" in chosen.added:
        span = {"first": first, "upto": until}
        if config.burst_noise:
            noise = {"scale": config.burst_noise, **span}
        params = {**schedule.params, "factor": config.burst_rate, **span}
        found |= {
            "schedule": Algorithm(name="cosine-burst@1", params=params),
            "divergence": None,
        }
    if "self_model" in chosen.added:
        own = {"weight": config.self_weight, "layer": config.self_layer}
    if noise or own:
        found |= {"objective": BESIDE, "params": {"noise": noise, "self_model": own}}
    return found


def segments(state: CurriculumState, arm: str) -> list[Train]:
    """Return the recipes of an arm's segments, as far as their mixes are chosen."""
    return state.remembered(("segments", arm), lambda: _segments(state, arm))


def _segments(state: CurriculumState, arm: str) -> list[Train]:
    found: list[Train] = []
    for chosen in state.mixes.get(arm, ()):
        before = found[-1].id if found else None
        if chosen.returned:
            before = found[-1].start
        told = dreamt(state, before) if "dreams" in chosen.added else None
        digests = dreams.streams(told) if told else {}
        found.append(segment(state.submitted, state.started, chosen, before, digests))
    return found


def dreamt(state: CurriculumState, before: str | None) -> Dreamed | None:
    """Return what a model dreamt; None if it did not. `before` is None for the start."""
    writer = before or as_float32(state.started).id
    found: Any = state.answers.get(Dream(writer, ()).key)
    return found


def points(state: CurriculumState, arm: str) -> list[Making]:
    """Return the models of an arm from the start on, as far as their mixes are chosen.

    The last one is in the dtype of the given model: it may be the result.
    """
    found: list[Making] = [as_float32(state.started), *segments(state, arm)]
    if len(found) > state.submitted.config.segments:
        found[-1] = given_dtype.rounded(state.started, found[-1])
    return found


def recipes(state: CurriculumState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes, each after those that it reads."""
    config: CurriculumConfig = state.submitted.config
    found: dict[str, Making] = {START: as_float32(state.started)}
    for arm in config.arms:
        for number, recipe in enumerate(segments(state, arm)):
            made = {name(config, arm, number): recipe}
            ends = number + 1 == config.segments
            found |= given_dtype.with_rounded(state.started, made) if ends else made
    return found


def last(state: CurriculumState) -> dict[str, Making]:
    """Return arm → its last model, of the start and of the arms whose mixes are all chosen."""
    every, arms = recipes(state), state.submitted.config.arms
    return {arm: every[arm] for arm in (START, *arms) if arm in every}
