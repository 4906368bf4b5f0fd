"""Recipes, events, state, prompts and stages of a bake, and the trajectories of each stage. Pure.

The models' recipes are a function of the run's settings and of what was recorded. Replies and
measurements are found under their tasks' keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.trajectories.sampled import Sampled, SampleReplies
from agent_forge.phases.prompt_baking.settings import LEAST, BakeConfig
from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.runs.event_types import Count, HalfPrecision, Large
from agent_forge.runs.record.device_setting import on_cpu
from agent_forge.studies.events import (
    GivenCompleted,
    GivenStarted,
    GivenSubmitted,
    all_weights,
    earlier_fields,
    earlier_settings,
    history,
    not_divided,
    not_rounded,
    without_adapters,
)
from agent_forge.studies.given_dtype import FLOAT32
from agent_forge.studies.making.making import Making
from agent_forge.studies.training_plan import adapted, as_float32, training
from agent_forge.weights.recipes import Algorithm, Train, Transform
from agent_forge.weights.training.windows import BAKED, OTHERS

if TYPE_CHECKING:
    from agent_forge.evaluation.trajectories.contexts import Beginnings
    from agent_forge.weights.folders.vocabularies import Tokenizer

#: General prompts. The last is never trained: it shows if a bake ignores prompts not rehearsed.
GENERIC = (
    "You are a helpful assistant.\n",
    "Answer in one short sentence.\n",
    "Continue the following text.\n",
    "Summarise the following.\n",
)
#: Streams to measure on: the slice that chooses, the test slice, that under other prompts, and that
#: after ordinary text.
CHOOSING, TEST, TEST_OTHERS = "bake/selection", "bake/test", "bake/test/others"
FAR = "bake/test/far"
#: Beginning of the names of streams that the given model reads after all prompts but one.
WITHOUT = "bake/test/without-"


@dataclass(frozen=True)
class BakeStage:
    """One bake of a run: the prompts that the teacher reads, and which model the teacher is."""

    #: From 1.
    number: int
    prompts: tuple[str, ...]
    #: True if the teacher is the result of the stage before, false if it is the given model.
    again: bool = False
    #: True if the result of the stage before writes the replies, without the prompts.
    on_policy: bool = False

    @property
    def samples(self) -> bool:
        """True if the stage has replies of its own, which the result of the stage before writes."""
        return self.again or self.on_policy

    def named(self, name: str) -> str:
        """Return the name of one of the stage's streams, "NAME/NUMBER"; in the first stage "NAME"."""
        return name if self.number == 1 else f"{name}/{self.number}"


@dataclass(frozen=True)
class Stream:
    """The description of a set of trajectories: replies to a slice's contexts after prompts."""

    slice: Slice
    #: What the writer reads: contexts have these in turn.
    prompts: tuple[tuple[str, ...], ...]
    #: The prompts that the reader has; None: those of the writer.
    heard: tuple[str, ...] | None = ()
    #: Stream whose replies these are; None: replies of its own.
    like: str | None = None
    #: Tokens of ordinary text before a context.
    after: int = 0
    #: True if the writer has the reader's prompts instead.
    on_policy: bool = False


def stages(config: BakeConfig) -> tuple[BakeStage, ...]:
    """Return the stages of a run: all prompts at once or one more in each, pursuit, own replies."""
    texts = config.prompts
    ends = range(1, len(texts) + 1) if config.sequence else [len(texts)]
    stages = [BakeStage(number, texts[:end]) for number, end in enumerate(ends, 1)]
    for further in ({"again": True},) * config.pursuit + ({"on_policy": True},) * config.own_replies:
        stages.append(BakeStage(len(stages) + 1, texts, **further))
    return tuple(stages)


def target(config: BakeConfig, stage: BakeStage) -> str:
    """Return the name of the selection stream that a stage's models are chosen on.

    It has the replies of the given model under the stage's prompts.
    """
    same = next(
        candidate
        for candidate in stages(config)
        if candidate.prompts == stage.prompts and not candidate.samples
    )
    return same.named(CHOOSING)


def rehearsed(config: BakeConfig) -> tuple[str, ...]:
    """Return the texts of the other prompts that the training rehearses; () if their weight is 0."""
    if not config.others_weight:
        return ()
    return (*config.others, *(GENERIC[:-1] if config.generic else ()))


def measured(config: BakeConfig) -> tuple[str, ...]:
    """Return the texts of the other prompts that are measured, the rehearsed ones first."""
    return (*config.others, *(GENERIC if config.generic else ()))


def streams(config: BakeConfig, beyond: int | None) -> dict[str, Stream]:
    """Return name → `Stream`, the description of replies that the given model writes or reads.

    `beyond` are the tokens of ordinary text before the contexts of a further set; None: no such set.
    """
    texts = config.prompts
    first = [stage for stage in stages(config) if not stage.samples]
    streams = {stage.named(BAKED): Stream("train", (stage.prompts,)) for stage in first}
    if other_prompts := rehearsed(config):
        streams[OTHERS] = Stream("train", tuple((text,) for text in other_prompts), None)
    streams |= {stage.named(CHOOSING): Stream("selection", (stage.prompts,)) for stage in first}
    streams[TEST] = Stream("test", (texts,))
    if other_prompts := measured(config):
        streams[TEST_OTHERS] = Stream("test", tuple((text,) for text in other_prompts), None)
    for number in range(len(texts)) if config.singly and len(texts) > 1 else ():
        rest = (*texts[:number], *texts[number + 1 :])
        streams[f"{WITHOUT}{number + 1}"] = Stream("test", (texts,), rest, TEST)
    if beyond:
        streams[FAR] = Stream("test", (texts,), after=beyond)
    return streams


def sampled(stage: BakeStage) -> dict[str, Stream]:
    """Return name → `Stream`, the description of replies that a stage has of its own."""
    return {stage.named(BAKED): Stream("train", (stage.prompts,), on_policy=stage.on_policy)}


def count(config: BakeConfig, stream: Stream) -> int:
    """Return the number of trajectories that a stream should have."""
    return config.trajectories if stream.slice == "train" else config.held_out


def built_in(config: BakeConfig, user_domains: Sequence[str]) -> tuple[str, ...]:
    """Return the domains of built-in text to add; those of `user_domains` are left out."""
    return tuple(domain for domain in config.built_in if domain not in user_domains)


#: The given model in float32, and the model at the end of the training.
PARENT, FULL = "parent", "full"
#: Key of all random draws; those of later stages have the stage's number.
PURPOSE = "bake"


@dataclass(frozen=True)
class BakeCandidate:
    """A model of a stage, from which the stage's result is chosen."""

    recipe: Making
    #: Share of the way to the trained model, or of its steps.
    share: float
    #: True if the training was stopped there, false if the weights are interpolated.
    early: bool = False
    #: The training that it is, or is a rounding of; None if it lies between two models.
    training: Train | None = None


@dataclass
class Course:
    """The models of a stage that has begun, and the result that it has chosen."""

    stage: BakeStage
    #: The model in float32 that its training begins with.
    start: Making
    #: The model at the end of its training; None before its replies are sampled.
    full: Train | None = None
    #: Name → candidate.
    candidates: Mapping[str, BakeCandidate] = field(default_factory=dict)
    #: The candidate that is its result; None before all are measured.
    best: str | None = None

    def plan(self, submitted: Submitted, started: Started, digests: Mapping[str, str]) -> None:
        """Set the models of the stage; `digests` are those of its streams to train on, by name."""
        config = submitted.config
        self.full = full(submitted, started, self.stage, self.start.id, digests)
        self.candidates = candidates(config, self.stage, self.start, self.full, started.dtype)

    def models(self, started: Started) -> dict[str, Making]:
        """Return name → recipe of the stage's models known so far, each after its inputs."""
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
    """Return the recipe of a training whose first steps identify a machine, before any reply.

    `digests` are those of the streams of trajectories to train on. In runs that settle no division of
    steps, which are earlier ones, it is a training on ordinary text.
    """
    first, rate = as_float32(started).id, submitted.config.rate
    if started.accumulation is None:
        return training(submitted, started, PURPOSE, first, "lm@1", {}, rate)
    pursued = bool(submitted.config.pursuit)
    stage = BakeStage(1, submitted.config.prompts, again=pursued)
    return full(submitted, started, stage, first, digests)


def sample(config: BakeConfig, started: Started) -> SampleReplies:
    """Return the task in which the given model writes all of its trajectories."""
    return SampleReplies(as_float32(started).id, tuple(streams(config, started.beyond)))


def full(
    submitted: Submitted, started: Started, stage: BakeStage, before: str, digests: Mapping[str, str]
) -> Train:
    """Return the recipe of the training of a stage, to its last step.

    `before` is the id of the model that the training begins with, `digests`: stream → its digest.
    """
    config, base_id = submitted.config, as_float32(started).id
    rehearses = bool(rehearsed(config))
    params = {
        "neutral": config.neutral_weight,
        "others": config.others_weight if rehearses else 0.0,
        "top": config.top,
    }
    inputs = {"teacher": before, "guard": base_id} if stage.again else {"teacher": base_id}
    purpose = PURPOSE if stage.number == 1 else f"{PURPOSE}-{stage.number}"
    rate, watch = config.rate, config.divergence
    objective, params = adapted(config, "bake@2" if stage.on_policy else "bake@1", params)
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
    """Return a candidate's name, such as "full", "strength-0.5", "stop-0.5", or "bake-2-full"."""
    whole = share == 1.0 and not rounded
    label = FULL if whole else f"{'stop' if early else 'strength'}-{share!r}"
    return label if number == 1 else f"{PURPOSE}-{number}-{label}"


def begin(started: Started, before: Making | None) -> Making:
    """Return the recipe of the float32 model that a stage's training begins with.

    `before` is the result of the stage before it, None for the first. Results of half precision are
    not what trainings read.
    """
    if before is None:
        return as_float32(started)
    if started.dtype is None:
        return before
    return Transform(operation="float32@1", inputs={"of": before.id})


def candidates(
    config: BakeConfig, stage: BakeStage, start: Making, end: Train, dtype: str | None
) -> dict[str, BakeCandidate]:
    """Return name → candidate of a stage: stopped trainings, then interpolations.

    The trained model is one of them if 1 is among the strengths; it is made in any case. `dtype` is
    `Started.dtype`: with one every candidate is rounded to it, as a place on a line has the dtype of
    the line's start. What is measured and chosen is then what is written.
    """
    models = {}
    origin = start.id if dtype is None else start.inputs["of"]
    for share in config.stops:
        early = end.to(round(share * config.steps))
        recipe = early if dtype is None else _line(origin, early, 1.0)
        models[name(share, stage.number, True)] = BakeCandidate(recipe, share, True, early)
    for share in config.strengths:
        whole = share == 1.0 and dtype is None
        recipe = end if whole else _line(origin, end, share)
        label = name(share, stage.number, rounded=dtype is not None)
        models[label] = BakeCandidate(recipe, share, training=end if share == 1.0 else None)
    return models


def _line(start: str, end: Train, place: float) -> Transform:
    """Return the recipe of the interpolation at `place` from the model with id `start` to `end`."""
    inputs = {"start": start, "end": end.id}
    return Transform(operation="interpolate@1", inputs=inputs, params={"place": place})


class Submitted(GivenSubmitted):
    """A bake was asked for."""

    schema_version = 6

    config: BakeConfig


class Started(GivenStarted):
    """Model, text, contexts and profile were pinned."""

    schema_version = 5

    #: Tokens of ordinary text before a further set of contexts; None: the model takes none so long.
    beyond: Count | None = None
    #: Tokens of the prompts, with what stands around messages.
    prompt_tokens: Count
    #: Slice → number of contexts that its text has.
    contexts: dict[str, Count]
    #: Parameters of the adapters that are trained; None: all weights are.
    trainable: Large | None = None
    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None
    #: Tokens of a forward pass that writes replies; None: as many as have room for all their logits.
    pass_tokens: Count | None = None


class Completed(GivenCompleted):
    """The prompt is baked and measured; or it changes nothing, and nothing was trained."""

    #: The recipe's name that is the result.
    chosen: str
    #: Figure → True if it is within its limit.
    met: dict[str, bool]


BakeState = history(
    "bake",
    *(Submitted, Started, Completed, Sampled),
    requests=(
        *(earlier_settings(divergence=None, beyond=None, singly=False), all_weights, on_cpu, dict),
        earlier_settings(own_replies=0),
    ),
    starts=(not_divided, without_adapters, not_rounded, earlier_fields(pass_tokens=None)),
)


def beginnings(config: BakeConfig, tokenizer: Tokenizer) -> Beginnings:
    """Return a `Beginnings`, which puts prompts before contexts as tokens. Raises ConfigError."""
    from agent_forge.evaluation.trajectories.contexts import Beginnings

    chat = bool(tokenizer.chat_template) if config.chat is None else config.chat
    return Beginnings(tokenizer, chat)


def check_room(heads: Beginnings, config: BakeConfig, positions: int | None) -> int:
    """Return the number of tokens that the prompts take; raise ConfigError if they leave no room."""
    whole = heads.room(config.prompts)
    rest = config.context_tokens + config.reply_tokens
    every = [("the prompts take", whole)]
    every += [
        (f"the prompt {text.strip()[:40]!r} takes", heads.room([text])) for text in measured(config)
    ]
    if positions is None:
        return whole
    for reader, tokens in every:
        if tokens + rest > positions:
            raise ConfigError(
                f"{reader} {tokens} tokens, context and reply {rest}, and the model takes {positions} "
                "in all: shorten the prompt, or set a smaller context_tokens or reply_tokens."
            )
    if config.neutral_tokens > positions:
        raise ConfigError(
            f"neutral_tokens is {config.neutral_tokens}, the model takes {positions} tokens at most."
        )
    return whole


def beyond(heads: Beginnings, config: BakeConfig, positions: int | None) -> int | None:
    """Return the number of tokens of ordinary text before a further set of contexts; None without it.

    The set is left out if the model takes no sequence that long.
    """
    rest = heads.room(config.prompts) + config.context_tokens + config.reply_tokens
    if config.beyond is None or (positions is not None and config.beyond + rest > positions):
        return None
    return config.beyond


def check_contexts(counts: dict[str, int]) -> None:
    """Raise DataError if a slice has too few contexts; `counts` has their number by slice."""
    for slice_, count in counts.items():
        if count < LEAST:
            raise DataError(
                f"the text has {count} contexts in the slice {slice_}: at least {LEAST} are needed. "
                "Give more text, more domains, or a smaller context_tokens."
            )
