"""Prompts of a bake, its stages, and the streams of trajectories that each needs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.data.slices import Slice
from phases.prompt_baking.settings import BakeConfig
from weights.training.trajectories import BAKED, OTHERS

#: General prompts. The last is never trained: it shows if a bake is deaf to what it has not rehearsed.
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
class Stage:
    """One bake of a run: the prompts that the teacher reads, and the model that it is."""

    #: From 1.
    number: int
    prompts: tuple[str, ...]
    #: True if the teacher is the result of the stage before, false if it is the given model.
    again: bool = False

    def named(self, name: str) -> str:
        """Return the name of one of the stage's streams; those of the first have the bare name."""
        return name if self.number == 1 else f"{name}/{self.number}"


@dataclass(frozen=True)
class Stream:
    """A stream of trajectories: replies to the contexts of a slice after prompts."""

    slice: Slice
    #: What the writer reads: contexts have these in turn.
    prompts: tuple[tuple[str, ...], ...]
    #: The prompts that the reader has; None: those of the writer.
    heard: tuple[str, ...] | None = ()
    #: Stream whose replies these are; None: replies of its own.
    like: str | None = None
    #: Tokens of ordinary text before a context.
    after: int = 0


def stages(config: BakeConfig) -> tuple[Stage, ...]:
    """Return the stages of a run: all prompts at once or one more in each, then the pursuit."""
    texts = config.prompts
    ends = range(1, len(texts) + 1) if config.sequence else [len(texts)]
    stages = [Stage(number, texts[:end]) for number, end in enumerate(ends, 1)]
    rounds = range(len(stages) + 1, len(stages) + 1 + config.pursuit)
    return (*stages, *(Stage(number, texts, again=True) for number in rounds))


def target(config: BakeConfig, stage: Stage) -> str:
    """Return the stream of the selection slice that a stage's models are chosen on.

    It has the replies of the given model under the stage's prompts.
    """
    same = next(
        candidate
        for candidate in stages(config)
        if candidate.prompts == stage.prompts and not candidate.again
    )
    return same.named(CHOOSING)


def rehearsed(config: BakeConfig) -> tuple[str, ...]:
    """Return the other prompts that the training rehearses."""
    if not config.others_weight:
        return ()
    return (*config.others, *(GENERIC[:-1] if config.generic else ()))


def measured(config: BakeConfig) -> tuple[str, ...]:
    """Return the other prompts that are measured, the rehearsed ones first."""
    return (*config.others, *(GENERIC if config.generic else ()))


def streams(config: BakeConfig, beyond: int | None) -> dict[str, Stream]:
    """Return name → stream of all that the given model writes, or reads after other prompts.

    `beyond` are the tokens of ordinary text before the contexts of a further set; None: no such set.
    """
    texts = config.prompts
    first = [stage for stage in stages(config) if not stage.again]
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


def pursued(stage: Stage) -> dict[str, Stream]:
    """Return name → stream of what the teacher of a pursuit's stage writes."""
    return {stage.named(BAKED): Stream("train", (stage.prompts,))}


def count(config: BakeConfig, stream: Stream) -> int:
    """Return the number of trajectories that a stream is to have."""
    return config.trajectories if stream.slice == "train" else config.held_out


def built_in(config: BakeConfig, user_domains: Sequence[str]) -> tuple[str, ...]:
    """Return the domains of built-in text beside the user's `user_domains`, whose names come first."""
    return tuple(domain for domain in config.built_in if domain not in user_domains)
