"""Events and state of a bake. Replies and measurements are found under their tasks' keys."""

from __future__ import annotations

from typing import Any

from evaluation.trajectories.sampled import Sampled
from phases.prompt_baking.settings import BakeConfig
from runs.event_types import HalfPrecision
from runs.record.device_setting import on_cpu
from runs.system.integers import Count, Large
from studies.events import (
    GivenCompleted,
    GivenStarted,
    GivenSubmitted,
    all_weights,
    history,
    not_divided,
    not_rounded,
    without_adapters,
    without_watch,
)


class Submitted(GivenSubmitted):
    """A bake was asked for."""

    schema_version = 4

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


def _as_before(data: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked for with the settings by which earlier runs measured what they did."""
    watched = without_watch(data)
    return {**watched, "config": {**watched["config"], "beyond": None, "singly": False}}


def _in_few_rows(data: dict[str, Any]) -> dict[str, Any]:
    """Return `started` with `pass_tokens`: earlier runs left room for the logits of all tokens."""
    return {**data, "pass_tokens": None}


BakeState = history(
    "bake",
    *(Submitted, Started, Completed, Sampled),
    requests=(_as_before, all_weights, on_cpu),
    starts=(not_divided, without_adapters, not_rounded, _in_few_rows),
)
