"""Events and state of a cognate run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from events import Registry
from phases.cognate.config import CognateConfig
from runs.event_types import HalfPrecision, ModelReference, Part, Profile, SourceRecord
from runs.kinds import state as common_state
from runs.record import events as common
from runs.record.device_setting import on_cpu
from runs.system.digests import Digest
from runs.system.integers import Count, Large
from studies.events import all_weights, not_rounded, without_adapters
from studies.making import events as making
from studies.making.making import HANDLERS, MakingState
from studies.observing import Observed


class Submitted(common.Submitted):
    """A cognate run was asked for."""

    schema_version = 8

    config: CognateConfig
    #: The model that specialists are trained of; None: a base is trained from scratch.
    base: ModelReference | None = None
    #: Files and folders of text, each PATH or DOMAIN=PATH; none: the built-in text.
    data: tuple[str, ...] = ()


class Forked(common.Forked):
    """A cognate run was branched from another."""

    schema_version = 8

    config: CognateConfig


class Started(common.Started):
    """Text, tokenizer and profile were pinned."""

    schema_version = 3

    parameters: Large
    #: Parameters of a specialist's adapters; None: all weights are trained.
    trainable: Large | None = None
    #: The model that was given as the base.
    base: SourceRecord | None = None
    #: Domain → BLAKE3 of its token ids, in the order in which training reads them.
    streams: dict[str, Digest]
    #: Domain → number of those tokens.
    tokens: dict[str, Large]
    #: Name → BLAKE3 of the files of tokenizer and configuration, which all models share.
    files: dict[str, Digest]
    #: BLAKE3 of the items to measure on.
    items: Digest
    profile: Profile
    #: BLAKE3 of weights and optimiser after three fixed steps: what the profile must reproduce.
    canary: Digest
    #: Tokens of a window.
    context: Count
    #: Parts that a step's windows are computed in, because all at once did not fit in memory.
    accumulation: Count = 1
    #: Steps of a segment; no part of the lineage.
    segment: Count
    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None

    @property
    def machine(self) -> str | None:
        """The profile that a device must offer."""
        return self.profile.of_machine


class Lead(Part):
    """A specialist's lead on its own domain: the bits per byte that the next best model needs more.

    The interval is the middle 95 % of a paired bootstrap over windows.
    """

    rival: str
    difference: float
    low: float
    high: float


class Result(Part):
    """A model that the run gives."""

    recipe_id: Digest
    #: BLAKE3 of its weights.
    digest: Digest
    #: Domain → bits per byte on the selection slice.
    bits_per_byte: dict[str, float]
    #: A specialist's lead; the base has none.
    lead: Lead | None = None


class Completed(common.Completed):
    """Base and specialists are made and measured."""

    #: Role → the model.
    models: dict[str, Result]


def _with_sharded(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of schema 2: earlier trainings were not sharded."""
    return {**data, "config": {**data["config"], "sharded": False}}


def _with_more_presets(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of schema 3: it has one preset more."""
    return data


def _without_watch(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of schema 4: no leap of the loss ended earlier trainings."""
    settings = {"divergence": None, "checkpointing": False}
    return {**data, "config": {**data["config"], **settings}}


def _of_qwen2(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of schema 5: earlier bases had one architecture."""
    settings = {"architecture": "qwen2", "memory": "linear", "recursions": 1, "halting": False}
    return {**data, "config": {**data["config"], **settings}}


def _of_presets_vocabulary(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of schema 6: earlier tokenizers had the preset's number of tokens.

    Runs that named no device were for the CPU.
    """
    data = on_cpu(data)
    return {**data, "config": {**data["config"], "vocabulary": None}}


def _not_averaged(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of schema 8: the models of earlier trainings are those of their last steps."""
    return {**data, "config": {**data["config"], "average": 1, "average_as": "linear"}}


REGISTRY: Registry = common.registry(
    (Submitted, Forked, Started, *making.EVENTS, Observed, Completed),
    {
        (Submitted.type, 1): _with_sharded,
        (Forked.type, 1): _with_sharded,
        (Submitted.type, 2): _with_more_presets,
        (Forked.type, 2): _with_more_presets,
        (Submitted.type, 3): _without_watch,
        (Forked.type, 3): _without_watch,
        (Submitted.type, 4): _of_qwen2,
        (Forked.type, 4): _of_qwen2,
        (Submitted.type, 5): _of_presets_vocabulary,
        (Forked.type, 5): _of_presets_vocabulary,
        (Submitted.type, 6): all_weights,
        (Forked.type, 6): all_weights,
        (Started.type, 1): without_adapters,
        (Started.type, 2): not_rounded,
        (Submitted.type, 7): _not_averaged,
        (Forked.type, 7): _not_averaged,
    },
)


@dataclass
class CognateState(MakingState):
    """State of a cognate run. Observations are in `answers`, under their tasks' keys."""

    kind: ClassVar[str] = "cognate"
    registry = REGISTRY
    handlers = common_state.handlers(Submitted, Forked, Started, Completed) | HANDLERS
    outside = making.OUTSIDE
