"""Settings, recipes, events, tasks and state of a quietstar run; the choice of hard tokens. Pure.

The models' recipes are a function of the run's settings and of what was pinned. Hard tokens are those
that the given model predicts worst on held-out text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agent_forge.events import Event
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import Count, Digest, EventPart, HalfPrecision
from agent_forge.runs.kinds.setting_words import CONSTANTS, TRAINING, Labels
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record.device_setting import on_cpu
from agent_forge.studies import given_dtype
from agent_forge.studies.events import (
    GivenStarted,
    GivenSubmitted,
    ModelsCompleted,
    history,
    not_rounded,
)
from agent_forge.studies.making.making import Making
from agent_forge.studies.settings import Positive, TrainingConfig, Watched
from agent_forge.studies.training_plan import as_float32, training
from agent_forge.weights.recipes import Train, Transform

#: Tokens of a thought.
ThoughtLength = Annotated[int, Field(ge=1, le=256)]


class QuietstarConfig(TrainingConfig, Watched):
    """Settings: how a model thinks, how long it is trained, and what is measured."""

    labels: ClassVar[Labels] = {
        "Thoughts": {
            "thought_lengths": "Tokens of a thought",
            "passes": "Thoughts per position",
            "ahead": "Tokens that reward a thought",
            "temperature": "Temperature of thoughts",
            "greedy": "Measure with the likeliest thoughts",
        },
        "Losses": {"kl": "Weight of the KL divergence"},
        "Measuring": {
            "hard": "Share of hard tokens",
            "document_tokens": "Tokens of a document",
            "measured_tokens": "Tokens of a domain",
        },
        TRAINING: {"base_tokens": "Tokens before the arms branch", "rate": "Learning rate"},
        CONSTANTS: {
            "own": "Weight of the thought's prediction",
            "settling": "Steps with a fixed share",
            "policy": "Weight of REINFORCE",
            "weight": "First share of thoughts",
        },
    }

    tokens: int = Field(
        100_000, ge=1, description="Tokens that each arm reads: all arms the same windows."
    )
    batch: int = Field(8, ge=1, le=65_536, description="Windows of a step.")
    context: int | None = Field(
        None,
        ge=8,
        le=1 << 20,
        description="Tokens of a window; none: 64, or fewer if the model takes no more with thoughts.",
    )
    base_tokens: int = Field(
        100_000,
        ge=0,
        description="Tokens of ordinary training before the arms branch, so that no arm leaves a "
        "plateau alone; 0: they branch from the given model.",
    )
    rate: Positive = Field(5e-4, description="Peak learning rate of all trainings.")
    thought_lengths: tuple[ThoughtLength, ...] = Field(
        (4,),
        min_length=1,
        max_length=16,
        description="Tokens of a thought; several, as [16, 8, 4]: each for an equal share of the "
        "steps. Measured with the last.",
    )
    passes: int = Field(2, ge=2, le=64, description="Thoughts sampled after each position.")
    ahead: int = Field(2, ge=1, le=64, description="Tokens of the text that a thought is rewarded for.")
    temperature: Positive = Field(1.0, description="Temperature at which thoughts are sampled.")
    greedy: bool = Field(
        False, description="Measure with the likeliest thoughts instead of sampled ones."
    )
    own: float = Field(
        1.0,
        ge=0,
        description="Weight of the thought's own prediction in loss and reward, beside the mixture; 0: "
        "the paper's loss.",
    )
    settling: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the steps in which the share of the thought stays as it began: a model "
        "that never saw a thought would turn it off.",
    )
    policy: float = Field(1.0, ge=0, description="Weight of REINFORCE.")
    kl: float = Field(
        0.1,
        ge=0,
        description="Weight of the divergence, without thoughts, from the model that the arms branch "
        "from; 0: none.",
    )
    weight: float = Field(
        0.1, gt=0, lt=1, description="Share of the thought in the mixture before any training."
    )
    hard: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Share of the held-out tokens that are hard: those that the given model predicts "
        "worst in each domain.",
    )
    document_tokens: int = Field(
        256, ge=8, description="Tokens of a held-out document that are measured, from its start."
    )
    measured_tokens: int = Field(
        16_000, ge=64, description="Tokens of each domain that are measured on a slice, about."
    )


#: Key of the random draws of all arms: they read the same windows.
PURPOSE = "quietstar"
#: The given model in float32, and the trained base that the arms branch from.
START, BASE = "start", "base"
#: Arms: ordinary training, the same computation without thoughts, thoughts.
CONTINUED, PAUSE, THOUGHTS = "continued", "pause", "thoughts"
#: The models that the last two begin with, and the one with thoughts as an ordinary model.
PAUSING, THINKING, SILENT = "pausing", "thinking", "silent"
#: The arm whose thoughts are exchanged between positions; it is measured, not made.
SHUFFLED = "shuffled"
#: Default number of tokens of a window, if the model takes that many.
CONTEXT = 64
#: Least number of tokens of a window.
SHORTEST = 8


def layers(config: QuietstarConfig) -> int:
    """Return the number of places that a thought needs: start, thought, end, text after it."""
    return max(config.thought_lengths) + 1 + config.ahead


def window(config: QuietstarConfig, longest: int | None) -> int:
    """Return the number of tokens of a window; `longest` is that of the model's longest sequence.

    Raises ConfigError if window and thoughts do not fit.
    """
    if longest is None:
        return config.context or CONTEXT
    room = longest - layers(config)
    if room < (config.context or SHORTEST):
        raise ConfigError(
            f"a window of {config.context or SHORTEST} tokens and {layers(config)} places for thoughts "
            f"are more than the {longest} tokens that the model takes: set a smaller context, shorter "
            "thought_lengths or ahead."
        )
    return config.context or min(CONTEXT, room)


def base(submitted: Submitted, started: Started) -> Making:
    """Return the recipe of the model that all arms branch from: trained, or the given model."""
    config, first = submitted.config, as_float32(started)
    if not config.base_tokens:
        return first
    base_training = _plain(submitted, started, f"{PURPOSE}/base", first.id)
    steps = max(1, config.base_tokens // (config.batch * started.context))
    return base_training.model_copy(update={"steps": steps, "upto": steps})


def _plain(submitted: Submitted, started: Started, purpose: str, first: str) -> Train:
    config = submitted.config
    return training(
        *(submitted, started, purpose, first, "lm@1", {}, config.rate), divergence=config.divergence
    )


def initial(submitted: Submitted, of: str, pause: bool) -> Transform:
    """Return the recipe of a model with a new part for thoughts, or for pauses; `of` is an id."""
    config = submitted.config
    params: dict[str, object] = {"weight": config.weight, "pause": pause}
    return Transform(operation="thoughts-init@1", inputs={"of": of}, params=params, seed=config.seed)


def thinking(submitted: Submitted, started: Started, first: str, teacher: str, pause: bool) -> Train:
    """Return the recipe of a training with thoughts or pauses; `first` and `teacher` are recipe ids."""
    config = submitted.config
    params: dict[str, object] = {
        "thinks": "pause" if pause else "sampled",
        "lengths": list(config.thought_lengths),
        "passes": config.passes,
        "ahead": config.ahead,
        "temperature": config.temperature,
        "own": config.own,
        "settling": config.settling,
        "policy": config.policy,
        "kl": config.kl,
    }
    inputs = {"teacher": teacher} if config.kl else {}
    return training(
        *(submitted, started, PURPOSE, first, "thoughts@1", params, config.rate, inputs),
        divergence=config.divergence,
    )


def models(submitted: Submitted, started: Started) -> dict[str, Making]:
    """Return name → recipe of everything that the run makes, each after its inputs."""
    first, common = as_float32(started), base(submitted, started)
    pausing = initial(submitted, common.id, True)
    thoughtful = initial(submitted, common.id, False)
    arms = {
        CONTINUED: _plain(submitted, started, PURPOSE, common.id),
        PAUSE: thinking(submitted, started, pausing.id, common.id, True),
        THOUGHTS: thinking(submitted, started, thoughtful.id, common.id, False),
    }
    # What the given model lacks, the part for thoughts, stays float32.
    recipes_by_name = given_dtype.with_rounded(started, arms, dtype="float32")
    return {
        **given_dtype.with_rounded(started, {START: first}),
        BASE: common,
        PAUSING: pausing,
        THINKING: thoughtful,
        **recipes_by_name,
        SILENT: Transform(operation="thoughts-removed@1", inputs={"of": recipes_by_name[THOUGHTS].id}),
    }


class Submitted(GivenSubmitted):
    """A quietstar run was asked for."""

    schema_version = 3

    config: QuietstarConfig


class Started(GivenStarted):
    """Model, text and profile were pinned."""

    schema_version = 2

    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None


class HardTokensFrozen(Event):
    """The held-out tokens that the given model predicts worst, noted before anything is trained."""

    type = "hard_tokens_frozen"

    recipe_id: Digest
    #: The slice of the data.
    on: str
    #: Domain → for each document the places of its hard tokens, from 0: the first that is predicted.
    tokens: dict[str, tuple[tuple[Count, ...], ...]]
    #: Domain → for each document the tokens that are predicted.
    sizes: dict[str, tuple[Count, ...]]
    #: Domain → the least −log p of a hard token, nats.
    thresholds: dict[str, float]
    seconds: float = Field(ge=0)


class ThoughtArm(EventPart):
    """An arm on the test slice."""

    recipe_id: Digest
    #: Domain → nats a hard token; domain → nats a token of all.
    hard: dict[str, float]
    every: dict[str, float]


class Completed(ModelsCompleted):
    """All arms are trained and compared, and the gate has decided what the result is."""

    arms: dict[str, ThoughtArm]
    #: The arm that is the result: the one with thoughts, or the given model, passed through.
    chosen: str


@dataclass(frozen=True)
class Freeze:
    """Task: find the hard tokens of a slice."""

    recipe_id: str
    on: str

    @property
    def key(self) -> str:
        """Return the task's key, `freeze/SLICE`; SLICE is the slice of the data, `on`."""
        return f"freeze/{self.on}"


QuietstarState = history(
    "quietstar",
    *(Submitted, Started, Completed, HardTokensFrozen),
    requests=(on_cpu, dict),
    starts=(not_rounded,),
)


def frozen(state: State, on: str) -> HardTokensFrozen | None:
    """Return the event of a slice's hard tokens; None before they are chosen."""
    event = state.answers.get(Freeze("", on).key)
    return event if isinstance(event, HardTokensFrozen) else None


def worst(
    losses: Sequence[NDArray[np.float64]], share: float
) -> tuple[tuple[tuple[int, ...], ...], float]:
    """Return (the places of each document's hard tokens, the least loss among hard tokens).

    `losses` are −log p of each document's tokens in nats. Of equal losses, the earlier token is hard.
    """
    flat = np.concatenate(losses)
    order = np.argsort(-flat, kind="stable")[: count(share, len(flat))]
    chosen = np.zeros(len(flat), bool)
    chosen[order] = True
    parts = np.split(chosen, np.cumsum([len(document) for document in losses])[:-1])
    places = tuple(tuple(int(n) for n in np.flatnonzero(part)) for part in parts)
    return places, float(flat[order[-1]])


def count(share: float, tokens: int) -> int:
    """Return the number of hard tokens among `tokens`, rounded up."""
    return math.ceil(share * tokens)


def wrong(event: HardTokensFrozen, share: float) -> str | None:
    """Return why an event cannot be a slice's hard tokens; None if it can. For the audit."""
    if not set(event.tokens) == set(event.sizes) == set(event.thresholds):
        return "its parts are not of the same domains"
    for domain, documents in event.tokens.items():
        sizes = event.sizes[domain]
        if len(documents) != len(sizes):
            return "it has another number of documents than of sizes"
        for places, size in zip(documents, sizes, strict=True):
            if list(places) != sorted(set(places)) or any(place >= size for place in places):
                return "a hard token has no place in its document"
        if sum(map(len, documents)) != count(share, sum(sizes)):
            return f"the hard tokens of {domain} are another share than was asked for"
    return None
