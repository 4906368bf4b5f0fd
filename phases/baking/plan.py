"""The models of a baking run as recipes: a function of its settings and of what was recorded. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evaluation.trajectories.sampled import Sampled
from phases.baking.config import BakingConfig, Cycle
from phases.baking.events import BakingState, CycleSample, IterationEnded, Started, Submitted
from studies import given_dtype, training_plan
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


@dataclass(frozen=True)
class Round:
    """An iteration, as far as it is known."""

    number: int
    cycle: Cycle
    #: The model that it begins with.
    start: Making
    #: What the model wrote, once that is recorded.
    written: Sampled | None
    #: How it ended; None: it is under way.
    ended: IterationEnded | None


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


def answered(state: BakingState, task: CycleSample) -> Sampled | None:
    """Return what a model wrote; None before it has."""
    found: Any = state.answers.get(task.key)
    return found


def full(state: BakingState, start: Making, written: Sampled) -> Train:
    """Return the recipe of an iteration's training, whose teacher is the model it begins with."""
    submitted, started = state.submitted, state.started
    config: BakingConfig = submitted.config
    own = [BAKED, *([OTHERS] if config.rehearsed else [])]
    others = config.others_weight if config.rehearsed else 0.0
    params = {"neutral": config.neutral_weight, "others": others, "top": None}
    objective, params = training_plan.adapted(config, "bake@1", params)
    base = training_plan.training(
        *(submitted, started, PURPOSE, start.id, objective, params, config.rate),
        {"teacher": start.id},
    )
    text = base.data if config.neutral_weight else {}
    digests = {name: started.streams[name] for name in text}
    undecayed = {**base.optimiser.params, "weight_decay": 0.0}
    changes = {
        "data": {**text, **dict.fromkeys(own, 1.0)},
        "data_digests": digests | {name: written.streams[name].digest for name in own},
        "context": config.neutral_tokens,
        "optimiser": Algorithm(name=base.optimiser.name, params=undecayed),
    }
    return Train.model_validate({**base.model_dump(), **changes})


def half(config: BakingConfig, start: Making, end: Train) -> Transform:
    """Return the recipe of an iteration's model, on the way from its start to the trained model."""
    inputs, place = {"start": start.id, "end": end.id}, {"place": config.strength}
    return Transform(operation="interpolate@1", inputs=inputs, params=place)


def rounds(state: BakingState) -> Iterator[Round]:
    """Yield all iterations in order; the last is under way unless the cycles have ended."""
    config: BakingConfig = state.submitted.config
    current, cycle = as_float32(state.started), config.cycles[0]
    ends = {one.iteration: one for one in state.switches}
    for number in range(1, len(state.iterations) + 2):
        ended = state.iterations[number - 1] if number <= len(state.iterations) else None
        written = answered(state, sample(config, cycle, current))
        yield Round(number, cycle, current, written, ended)
        if ended is not None and ended.outcome == "kept":
            assert written is not None
            current = half(config, current, full(state, current, written))
        if number in ends:
            following = ends[number].next
            if following is None:
                return
            cycle = following


def draws(state: BakingState, cycle: str, writer: str) -> tuple[str | int, ...]:
    """Return the key of the random numbers by which the model of a recipe's id writes in a cycle.

    Each iteration has numbers of its own. With the same numbers the next model, which is much like the
    one before, would write many of the same turns again.
    """
    key = (state.submitted.config.seed, PURPOSE)
    if not state.started.drawn_apart:
        return key
    own = (one.number for one in rounds(state) if (one.cycle, one.start.id) == (cycle, writer))
    number = next(own, None)
    return key if number is None else (*key, "iteration", number)


def recipes(state: BakingState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes, each after those that it reads."""
    found = given_dtype.with_rounded(state.started, {START: as_float32(state.started)})
    for one in rounds(state):
        skipped = one.ended is not None and one.ended.outcome == "nothing"
        if one.written is None or skipped or not one.written.streams[BAKED].trajectories:
            continue
        end = full(state, one.start, one.written)
        found[name(one.number, True)] = end
        made = {name(one.number): half(state.submitted.config, one.start, end)}
        found |= given_dtype.with_rounded(state.started, made)
    return found


def newest(state: BakingState) -> str:
    """Return the name of the last model that was kept."""
    kept = [one.iteration for one in state.iterations if one.outcome == "kept"]
    return name(kept[-1]) if kept else START
