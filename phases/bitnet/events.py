"""Events and state of a bitnet run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from events import Registry
from phases.bitnet.config import BitnetConfig
from runs.event_types import Figure, Profile, SourceRecord
from runs.kinds import state as common_state
from runs.record import events as common
from runs.record.device_setting import on_cpu
from runs.system.digests import Digest
from runs.system.integers import Count, Large
from studies.events import (
    GivenCompleted,
    GivenSubmitted,
    not_divided,
    without_watch,
)
from studies.making import events as making
from studies.making.making import HANDLERS, MakingState
from studies.observing import Observed


class Submitted(GivenSubmitted):
    """A bitnet run was asked for."""

    schema_version = 3

    config: BitnetConfig


class Forked(common.Forked):
    """A bitnet run was branched from another."""

    schema_version = 3

    config: BitnetConfig


class Started(common.Started):
    """Model, text and profile were pinned."""

    schema_version = 2

    model: SourceRecord
    #: Weights in matrices that become ternary, of all parameters of the model.
    ternary: Large
    #: Bytes of the tensors: in float32, and packed in two bits a ternary weight with their scales.
    bytes: Large
    packed: Large
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
    #: Parts that a step's windows are computed in, because fewer did not fit in memory; None: those of
    #: the settings.
    accumulation: Count | None = None
    #: Steps of a segment; no part of the lineage.
    segment: Count

    @property
    def machine(self) -> str | None:
        """The profile that a device must offer."""
        return self.profile.of_machine


class Completed(GivenCompleted):
    """All models are made and compared."""

    #: The way of rounding without training that was the best on the selection slice.
    untrained: str
    figures: dict[str, Figure]


REGISTRY: Registry = common.registry(
    (Submitted, Forked, Started, *making.EVENTS, Observed, Completed),
    {
        (Submitted.type, 1): without_watch,
        (Forked.type, 1): without_watch,
        (Started.type, 1): not_divided,
        (Submitted.type, 2): on_cpu,
        (Forked.type, 2): on_cpu,
    },
)


@dataclass
class BitnetState(MakingState):
    """State of a bitnet run. Observations are in `answers`, under their tasks' keys."""

    kind: ClassVar[str] = "bitnet"
    registry = REGISTRY
    handlers = common_state.handlers(Submitted, Forked, Started, Completed) | HANDLERS
    outside = making.OUTSIDE
