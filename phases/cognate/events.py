"""Events of a cognate run, and how those of earlier schemas are read."""

from __future__ import annotations

from typing import Any

from phases.cognate.settings import CognateConfig
from runs.event_types import HalfPrecision, ModelReference, Part, SourceRecord
from runs.record import events as common
from runs.record.device_setting import on_cpu
from runs.system.integers import Count, Large
from studies import events
from studies.events import (
    TextStarted,
    all_weights,
    history,
    not_rounded,
    without_adapters,
    without_watch,
)


class Submitted(common.Submitted):
    """A cognate run was asked for."""

    schema_version = 8

    config: CognateConfig
    #: The model that specialists are trained of; None: a base is trained from scratch.
    base: ModelReference | None = None
    #: Files and folders of text, each PATH or DOMAIN=PATH; none: the built-in text.
    data: tuple[str, ...] = ()

    @property
    def model(self) -> ModelReference | None:
        """The given model, by the name that it has in all kinds of run."""
        return self.base


class Started(TextStarted):
    """Text, tokenizer and profile were pinned."""

    schema_version = 3

    parameters: Large
    #: Parameters of a specialist's adapters; None: all weights are trained.
    trainable: Large | None = None
    #: The model that was given as the base.
    base: SourceRecord | None = None
    #: Parts that a step's windows are computed in, because all at once did not fit in memory.
    accumulation: Count = 1
    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None

    @property
    def model(self) -> SourceRecord | None:
        """The given model, by the name that it has in all kinds of run."""
        return self.base


class Lead(Part):
    """A specialist's lead on its own domain: the bits per byte that the next best model needs more.

    The interval is the middle 95 % of a paired bootstrap over windows.
    """

    rival: str
    difference: float
    low: float
    high: float


class Result(events.Result):
    """A model that the run gives."""

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


def _not_watched(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of schema 4: no leap of the loss ended earlier trainings."""
    data = without_watch(data)
    return {**data, "config": {**data["config"], "checkpointing": False}}


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


CognateState = history(
    "cognate",
    *(Submitted, Started, Completed),
    requests=(
        *(_with_sharded, _with_more_presets, _not_watched, _of_qwen2, _of_presets_vocabulary),
        *(all_weights, _not_averaged),
    ),
    starts=(without_adapters, not_rounded),
)
