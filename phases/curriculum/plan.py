"""The trainings of a curriculum run as recipes: a function of settings, pins and chosen mixes. Pure.

Each segment is a training of its own, whose recipe has its mix; it carries on the optimiser of the
segment before, within one schedule for all.
"""

from __future__ import annotations

from evaluation.given_model_runs.training_plan import as_float32, reading
from phases.curriculum.config import CurriculumConfig
from phases.curriculum.events import CurriculumState, MixChosen, Started, Submitted
from runs.errors import ConfigError
from weights.making.events import Making
from weights.recipes import Train

#: The given model in float32, which all arms begin with.
START = "start"
#: Key of the random draws of all trainings.
PURPOSE = "curriculum"
OBJECTIVE = "answers@1"


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


def segment(submitted: Submitted, started: Started, chosen: MixChosen, before: str | None) -> Train:
    """Return the recipe of a segment; `before` is the id of the segment before it."""
    config, number = submitted.config, chosen.segment
    at = bounds(config, started.context)
    first = before or as_float32(started).id
    whole = reading(submitted, started, chosen.mix, PURPOSE, first, OBJECTIVE, config.rate)
    own = {
        "carries": before is not None,
        "first": at[number],
        "upto": at[number + 1],
        "divergence": config.divergence,
    }
    return whole.model_copy(update=own)


def segments(state: CurriculumState, arm: str) -> list[Train]:
    """Return the recipes of an arm's segments, as far as their mixes are chosen."""
    found: list[Train] = []
    for chosen in state.mixes.get(arm, ()):
        before = found[-1].id if found else None
        found.append(segment(state.submitted, state.started, chosen, before))
    return found


def points(state: CurriculumState, arm: str) -> list[Making]:
    """Return the models of an arm from the start on, as far as their mixes are chosen."""
    return [as_float32(state.started), *segments(state, arm)]


def recipes(state: CurriculumState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes, each after those that it reads."""
    config: CurriculumConfig = state.submitted.config
    found: dict[str, Making] = {START: as_float32(state.started)}
    for arm in config.arms:
        for number, recipe in enumerate(segments(state, arm)):
            found[name(config, arm, number)] = recipe
    return found


def last(state: CurriculumState) -> dict[str, Making]:
    """Return arm → its last model, of the start and of the arms whose mixes are all chosen."""
    every, arms = recipes(state), state.submitted.config.arms
    return {arm: every[arm] for arm in (START, *arms) if arm in every}
