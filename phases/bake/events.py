"""Events and state of a bake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from evaluation.trajectories.sampled import Sampled
from events import Registry
from phases.bake.config import BakeConfig
from runs.event_types import Figure, HalfPrecision, Profile, SourceRecord
from runs.kinds import state as common_state
from runs.record import events as common
from runs.record.device_setting import on_cpu
from runs.system.digests import Digest
from runs.system.integers import Count, Large
from studies.events import (
    GivenCompleted,
    GivenSubmitted,
    all_weights,
    not_divided,
    not_rounded,
    without_adapters,
    without_watch,
)
from studies.making import events as making
from studies.making.making import HANDLERS, MakingState
from studies.observing import Observed


class Submitted(GivenSubmitted):
    """A bake was asked for."""

    schema_version = 4

    config: BakeConfig


class Forked(common.Forked):
    """A bake was branched from another."""

    schema_version = 4

    config: BakeConfig


class Started(common.Started):
    """Model, text, contexts and profile were pinned."""

    schema_version = 5

    model: SourceRecord
    #: Domain → BLAKE3 of its token ids, in the order in which training reads them.
    streams: dict[str, Digest]
    #: Domain → number of those tokens.
    tokens: dict[str, Large]
    #: Name → BLAKE3 of the files of tokenizer and configuration.
    files: dict[str, Digest]
    #: BLAKE3 of the items to measure on.
    items: Digest
    profile: Profile
    #: BLAKE3 of weights and optimiser after three fixed steps: what the profile must reproduce.
    canary: Digest
    #: Tokens of a window.
    context: Count
    #: Parts that a step's rows are computed in, because fewer did not fit in memory; None: those of the
    #: settings.
    accumulation: Count | None = None
    #: Tokens of ordinary text before a further set of contexts; None: the model takes none so long.
    beyond: Count | None = None
    #: Steps of a segment; no part of the lineage.
    segment: Count
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
    figures: dict[str, Figure]
    #: Figure → True if it is within its limit.
    met: dict[str, bool]


def _as_before(data: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked for with the settings by which earlier runs measured what they did."""
    told = without_watch(data)
    return {**told, "config": {**told["config"], "beyond": None, "singly": False}}


def _in_few_rows(data: dict[str, Any]) -> dict[str, Any]:
    """Return `started` with `pass_tokens`: earlier runs left room for the logits of all tokens."""
    return {**data, "pass_tokens": None}


REGISTRY: Registry = common.registry(
    (Submitted, Forked, Started, *making.EVENTS, Sampled, Observed, Completed),
    {
        (Submitted.type, 1): _as_before,
        (Forked.type, 1): _as_before,
        (Started.type, 1): not_divided,
        (Submitted.type, 2): all_weights,
        (Forked.type, 2): all_weights,
        (Started.type, 2): without_adapters,
        (Started.type, 3): not_rounded,
        (Started.type, 4): _in_few_rows,
        (Submitted.type, 3): on_cpu,
        (Forked.type, 3): on_cpu,
    },
)


@dataclass
class BakeState(MakingState):
    """State of a bake. Observations and trajectories are in `answers`, under their tasks' keys."""

    kind: ClassVar[str] = "bake"
    registry = REGISTRY
    handlers = common_state.handlers(Submitted, Forked, Started, Completed) | HANDLERS
    outside = making.OUTSIDE
