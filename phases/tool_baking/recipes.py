"""Recipes, events and tasks of a baking run, and the rule by which its cycles switch. Pure.

A cycle ends if its last bake was not kept, if there was nothing to bake, or on a plateau: the slope of
the moving average of its scores is below ε. Then the other cycle continues. The run ends if the ended
cycle has gained less than ε and the cycle before it gained as little, or had no more to bake. So no
model is baked twice alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field
from typing_extensions import override

from agent_forge.evaluation.trajectories.sampled import Sampled, SampleReplies
from agent_forge.events import Event
from agent_forge.phases.tool_baking.settings import BakingConfig, Cycle
from agent_forge.runs.event_types import Count, Digest, HalfPrecision, Large, SourceRecord
from agent_forge.runs.record.device_setting import on_cpu
from agent_forge.studies import training_plan
from agent_forge.studies.events import (
    GivenCompleted,
    GivenSubmitted,
    TextStarted,
    all_weights,
    earlier_fields,
    history,
    not_rounded,
)
from agent_forge.studies.making.making import Making
from agent_forge.studies.run import Note
from agent_forge.studies.training_plan import as_float32
from agent_forge.weights.recipes import Algorithm, Train, Transform
from agent_forge.weights.training.windows import BAKED, OTHERS

Outcome = Literal["kept", "reverted", "nothing"]
Reason = Literal["plateau", "reverted", "nothing", "limit"]


class Submitted(GivenSubmitted):
    """A baking run was asked for."""

    schema_version = 5

    config: BakingConfig


class Started(TextStarted):
    """Model, text, tasks and profile were pinned."""

    schema_version = 3

    model: SourceRecord
    #: BLAKE2b of the tool tasks.
    tasks: Digest
    #: "FAMILY/SLICE" → number of tool tasks.
    counts: dict[str, Count]
    #: Form of calls, and the prompt that tells of the tools.
    form: str
    prompt: str
    #: Parameters of the adapters that are trained; None: all weights are.
    trainable: Large | None = None
    #: True if each iteration draws random numbers of its own; in earlier runs all had the same.
    drawn_apart: bool = True
    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None


class Proposed(Event):
    """A model proposed personas."""

    type = "proposed"

    recipe_id: Digest
    #: Different texts, each a prompt.
    personas: tuple[str, ...]
    seconds: float = Field(ge=0)


class IterationEnded(Event):
    """An iteration of a cycle was baked and measured, or had nothing to bake."""

    type = "iteration_ended"

    #: Number of the iteration, from 1.
    iteration: Count
    cycle: Cycle
    outcome: Outcome
    #: Success on the selection slice of the model before, and of the baked one.
    before: float
    after: float | None
    #: The persona that was baked.
    persona: str | None
    #: Why nothing was baked; empty if something was.
    why: str


class CycleSwitched(Event):
    """A cycle has ended: another one goes on, or none."""

    type = "cycle_switched"

    #: Number of the last iteration of the cycle.
    iteration: Count
    ended: Cycle
    next: Cycle | None
    reason: Reason
    #: Scores of the cycle, its start first, and the slope of their moving average if there are enough.
    scores: tuple[float, ...]
    slope: float | None


class Completed(GivenCompleted):
    """The cycles have ended, and the result is compared with the given model."""

    #: The recipe's name that is the result.
    chosen: str


@dataclass(frozen=True)
class Propose:
    """Task: let a model propose personas."""

    recipe_id: str

    @property
    def key(self) -> str:
        """`propose/ID`, where ID is that of the model's recipe."""
        return f"propose/{self.recipe_id}"


@dataclass(frozen=True)
class CycleSample(SampleReplies):
    """Task: let a model work on tool tasks under a prompt, and write what it says."""

    #: The cycle that the prompt is of; "held": turns to measure on, under the prompt of the tools.
    cycle: str = "tools"

    @property
    @override
    def key(self) -> str:
        return f"sample/{self.cycle}/{self.recipe_id}"


BakingState = history(
    "baking",
    *(Submitted, Started, Completed),
    *(Sampled, Proposed, IterationEnded, CycleSwitched),
    requests=(all_weights, dict, on_cpu, dict),
    starts=(earlier_fields(trainable=None, drawn_apart=False), not_rounded),
)


#: The given model in float32.
START = "start"
#: Key of all random draws.
PURPOSE = "baking"
#: Streams to measure on: turns under the prompt of the tools.
HELD, HELD_TEST = "baking/selection", "baking/test"
#: The cycle's name of the task that writes them.
HOLDING = "held"


def name(number: int, whole: bool = False) -> str:
    """Return "iteration-NUMBER", or if `whole` "iteration-NUMBER-full", the trained model's name."""
    return f"iteration-{number}-full" if whole else f"iteration-{number}"


def canary(submitted: Submitted, started: Started) -> Train:
    """Return the recipe of a training on ordinary text, whose first steps identify a machine."""
    first, rate = as_float32(started).id, submitted.config.rate
    objective, params = training_plan.adapted(submitted.config, "lm@1", {})
    return training_plan.training(submitted, started, PURPOSE, first, objective, params, rate)


def sample(config: BakingConfig, cycle: Cycle, start: Making) -> CycleSample:
    """Return the task in which a model writes the turns that an iteration trains on."""
    streams = (BAKED, OTHERS) if config.rehearsed else (BAKED,)
    return CycleSample(start.id, streams, cycle)


def held(started: Started) -> CycleSample:
    """Return the task in which the given model writes the turns to measure on."""
    return CycleSample(as_float32(started).id, (HELD, HELD_TEST), HOLDING)


def full(submitted: Submitted, started: Started, start: Making, written: Sampled) -> Train:
    """Return the recipe of an iteration's training, whose teacher is the model that it begins with."""
    config = submitted.config
    streams = [BAKED, *([OTHERS] if config.rehearsed else [])]
    weight = config.others_weight if config.rehearsed else 0.0
    params = {"neutral": config.neutral_weight, "others": weight, "top": None}
    objective, params = training_plan.adapted(config, "bake@1", params)
    base = training_plan.training(
        *(submitted, started, PURPOSE, start.id, objective, params, config.rate), {"teacher": start.id}
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
    """Return the recipe of an iteration's model: part of the way from its start to its end."""
    inputs, place = {"start": start.id, "end": end.id}, {"place": config.strength}
    return Transform(operation="interpolate@1", inputs=inputs, params=place)


@dataclass
class Iteration:
    """An iteration of a cycle, as far as it is known."""

    number: int
    cycle: Cycle
    #: The model that it begins with, in float32, and its success on the selection slice.
    start: Making
    before: float
    #: Persona → success on the selection slice under it.
    auditions: Mapping[str, float] = field(default_factory=dict)
    #: The persona that is baked, and what the model wrote.
    persona: str | None = None
    written: Sampled | None = None
    ended: IterationEnded | None = None

    def note(self, outcome: Outcome, after: float | None = None, why: str = "") -> Note:
        """Return the step that records the end of the iteration."""
        event = IterationEnded(
            iteration=self.number,
            cycle=self.cycle,
            outcome=outcome,
            before=self.before,
            after=after,
            persona=None if outcome == "nothing" else self.persona,
            why=why,
        )
        return Note(f"iteration/{self.number}", event)


def averages(scores: Sequence[float], smoothing: int) -> list[float]:
    """Return for each score the mean of it and up to `smoothing` − 1 scores before it."""
    windows = [scores[max(0, end - smoothing) : end] for end in range(1, len(scores) + 1)]
    return [sum(window) / len(window) for window in windows]


def slope(values: Sequence[float]) -> float:
    """Return the least-squares slope of two or more values at 0, 1, 2, …"""
    middle = (len(values) - 1) / 2
    spread = sum((at - middle) ** 2 for at in range(len(values)))
    return sum((at - middle) * value for at, value in enumerate(values)) / spread


def newest_slope(scores: Sequence[float], smoothing: int, window: int) -> float | None:
    """Return the slope over the last `window` moving averages; None if there are fewer."""
    smooth = averages(scores, smoothing)
    return slope(smooth[-window:]) if len(smooth) >= window else None


def switch(
    settings: BakingConfig, iterations: Sequence[IterationEnded], switches: Sequence[CycleSwitched]
) -> CycleSwitched | None:
    """Return the event that ends the cycle of the last iteration; None if the cycle goes on."""
    cycle = iterations[switches[-1].iteration if switches else 0 :]
    later_scores = [
        ended.after for ended in cycle if ended.outcome == "kept" and ended.after is not None
    ]
    scores = (cycle[0].before, *later_scores)
    newest = newest_slope(scores, settings.smoothing, settings.window)
    reason = _reason(settings, cycle[-1], newest)
    if reason is None:
        return None
    other_cycles: list[Cycle] = [name for name in settings.cycles if name != cycle[-1].cycle]
    over = reason == "limit" or not other_cycles or _exhausted(settings, scores, switches)
    return CycleSwitched(
        iteration=len(iterations),
        ended=cycle[-1].cycle,
        next=None if over else other_cycles[0],
        reason=reason,
        scores=scores,
        slope=newest,
    )


def _reason(settings: BakingConfig, last: IterationEnded, newest: float | None) -> Reason | None:
    """Return "limit", "reverted", "nothing" or "plateau": why a cycle ends; None if it goes on."""
    if last.iteration >= settings.iterations:
        return "limit"
    if last.outcome != "kept":
        return last.outcome
    return "plateau" if newest is not None and newest < settings.epsilon else None


def _exhausted(
    settings: BakingConfig, scores: Sequence[float], switches: Sequence[CycleSwitched]
) -> bool:
    """Return True if this cycle has gained too little, and the one before it is used up."""
    if not switches or scores[-1] - scores[0] >= settings.epsilon:
        return False
    before = switches[-1]
    return before.reason != "plateau" or before.scores[-1] - before.scores[0] < settings.epsilon
