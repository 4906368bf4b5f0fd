"""Settings, events and state of a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from evaluation.data.slices import Slice
from events import Registry
from runs.event_types import Figure, ModelReference, Profile, SourceRecord
from runs.kinds import state as common_state
from runs.kinds.setting_words import DATA, LIMITS, Labels
from runs.kinds.state import State
from runs.record import events as common
from runs.record.device_setting import AUTO, DEVICE, on_cpu
from runs.system.digests import Digest
from runs.system.integers import Large
from studies.observing import Observed


class MeasureConfig(BaseModel):
    """Settings of a measurement."""

    labels: ClassVar[Labels] = {
        DATA: {
            "slice": "Slice of the data",
            "context": "Tokens of context",
            "seed": "Seed",
        },
        LIMITS: {
            "device": "Device",
        },
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
