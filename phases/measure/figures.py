"""Settings, events, state and figures of a measurement. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.measures.bootstrap import Counts
from agent_forge.events import Registry
from agent_forge.runs.event_types import (
    Digest,
    Figure,
    Large,
    ModelReference,
    Profile,
    SourceRecord,
)
from agent_forge.runs.kinds import state as common_state
from agent_forge.runs.kinds.setting_words import DATA, LIMITS, Labels
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record import events as common
from agent_forge.runs.record.device_setting import AUTO, DEVICE, on_cpu
from agent_forge.studies import comparison
from agent_forge.studies.comparison import draws, figure, mean, rates, resampled
from agent_forge.studies.events import Observe, Observed

MEASURE = "rolling-bits-per-byte@1"
#: Figure → what it is, in words.
FIGURES = {
    "bits_per_byte": "bits per byte: those of the measured model, the mean over domains",
    "retention": "quality kept of the best input: bits per byte of the best model that it is compared "
    "with, divided by those of the measured model",
    "regression": "loss in the worst domain: rise of bits per byte over the worst input, in the domain "
    "where this rise is largest; below zero it is better than its worst input everywhere",
    "cumulative": "quality kept since the beginning: bits per byte of the best model that the pipeline "
    "began with, divided by those of the measured model",
    "bytes": "size unpacked: bytes of the measured model's tensors, even if its file is packed",
    "size": "unpacked size beside the largest input: bytes of the measured model's tensors, divided by "
    "those of the largest model that it is compared with",
}
#: Figures that are shares, shown beside the result.
SHARES = ("retention", "cumulative", "regression", "size")


def observations(state: MeasureState) -> dict[str, Observe]:
    """Return recipe id → its measurement, of all that is measured."""
    on = state.submitted.config.slice
    return {
        source.recipe_id: Observe(source.recipe_id, MEASURE, on) for source in state.started.sources
    }


def observed(state: MeasureState) -> dict[str, Observed]:
    """Return recipe id → what was observed, of the models that are measured."""
    return comparison.observed(state, observations(state)) if state.started else {}


def figures(state: MeasureState) -> dict[str, Figure]:
    """Return the figures of a measurement whose models are all measured.

    Without models to compare with there is no `retention`, `regression` and `size`, and without those
    of a pipeline's beginning no `cumulative`. Sizes have no interval.
    """
    started, events = state.started, observed(state)
    (id_,) = started.roles["model"]
    baselines, first = (started.roles.get(role, ()) for role in ("against", "first"))
    resamples = draws(started.documents, "measure", state.submitted.config.seed)
    count, sizes = sum(started.documents.values()), started.bytes
    bits, drawn = mean(events[id_]), resampled(events[id_], resamples)
    values = {"bits_per_byte": figure(bits, drawn, count)}
    for name, rivals in (("retention", baselines), ("cumulative", first)):
        if rivals:
            best = min((events[rival] for rival in rivals), key=mean)
            share = resampled(best, resamples) / drawn
            values[name] = figure(mean(best) / bits, share, count)
    if baselines:
        rivals = [events[other] for other in baselines]
        values["regression"] = _regression(events[id_], rivals, resamples, count)
    values["bytes"] = Figure(value=sizes[id_])
    if baselines:
        values["size"] = Figure(value=sizes[id_] / max(sizes[other] for other in baselines))
    return values


def _regression(
    event: Observed, rivals: Sequence[Observed], drawn: Mapping[str, Counts], count: int
) -> Figure:
    """Return the largest rise in any domain over the worst of the other models there."""
    own_rates, rival_rates = rates(event, drawn), [rates(other, drawn) for other in rivals]
    rises = [own_rates[d] / np.max([rival[d] for rival in rival_rates], axis=0) - 1 for d in drawn]
    point = max(event.values[d] / max(other.values[d] for other in rivals) - 1 for d in drawn)
    return figure(point, np.max(rises, axis=0), count)


class MeasureConfig(BaseModel):
    """Settings of a measurement."""

    labels: ClassVar[Labels] = {
        DATA: {"slice": "Slice of the data", "context": "Tokens of context", "seed": "Seed"},
        LIMITS: {"device": "Device"},
    }

    model_config = ConfigDict(frozen=True, extra="forbid")

    slice: Slice = Field("test", description="The slice of the data that is measured on.")
    context: int = Field(
        1024,
        ge=8,
        le=1 << 20,
        description="Tokens that a prediction may look back on; less if a model takes fewer.",
    )
    seed: int = Field(0, description="Of the resamples that intervals are computed from.")
    device: str = Field(AUTO, description=DEVICE)


#: The parts that models play: the one that is measured, those it is compared with, and those that the
#: pipeline began with.
Role = Literal["model", "against", "first"]
ROLES: tuple[Role, ...] = get_args(Role)


class Submitted(common.Submitted):
    """A measurement was asked for."""

    schema_version = 2

    config: MeasureConfig
    #: One model.
    model: tuple[ModelReference, ...]
    against: tuple[ModelReference, ...] = ()
    first: tuple[ModelReference, ...] = ()
    #: Files and folders of items; none: the built-in ones.
    data: tuple[str, ...] = ()

    def given(self) -> dict[Role, tuple[ModelReference, ...]]:
        """Return role → models."""
        return {"model": self.model, "against": self.against, "first": self.first}


class Forked(common.Forked):
    """A measurement was branched from another."""

    schema_version = 2

    config: MeasureConfig


class Started(common.Started):
    """Models, items and profile were pinned."""

    #: Every model once, in the order in which it was given.
    sources: tuple[SourceRecord, ...]
    #: Role → recipe ids of `sources`, one for each model that was given.
    roles: dict[Role, tuple[Digest, ...]]
    #: SHA-256 of all items (`evaluation.data.items.digest`).
    data_digest: Digest
    #: Domain → number of documents that are measured on.
    documents: dict[str, Large]
    profile: Profile
    #: Recipe id → bytes of the model's tensors.
    bytes: dict[Digest, Large]


class Completed(common.Completed):
    """All models are measured and compared."""

    figures: dict[str, Figure]


REGISTRY: Registry = common.registry(
    (Submitted, Forked, Started, Observed, Completed),
    {(Submitted.type, 1): on_cpu, (Forked.type, 1): on_cpu},
)


@dataclass
class MeasureState(State):
    """State of a measurement. Observations are in `answers`, under their tasks' keys."""

    kind: ClassVar[str] = "measure"
    registry = REGISTRY
    handlers = common_state.handlers(Submitted, Forked, Started, Completed)
