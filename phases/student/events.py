"""Events and state of a student run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from events import Registry
from phases.student.config import StudentConfig
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
    """A student run was asked for."""

    schema_version = 3

    config: StudentConfig


class Forked(common.Forked):
    """A student run was branched from another."""

    schema_version = 3

    config: StudentConfig


class Started(common.Started):
    """Model, text, sizes and profile were pinned."""

    schema_version = 2

    model: SourceRecord
    #: Settings of config.json in which the student differs from the given model.
    sizes: dict[str, int | tuple[str, ...]]
    #: Parameters of the student.
    parameters: Large
    #: Domain → BLAKE3 of its token ids, in the order in which training reads them.
    streams: dict[str, Digest]
    #: Domain → number of those tokens.
    tokens: dict[str, Large]
    #: Name → BLAKE3 of the files of tokenizer and configuration, which the students share.
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
    """The students are trained and compared with the given model."""

    #: The arm that is the result: the better student on the selection slice.
    chosen: str
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
class StudentState(MakingState):
    """State of a student run. Observations are in `answers`, under their tasks' keys."""

    kind: ClassVar[str] = "student"
    registry = REGISTRY
    handlers = common_state.handlers(Submitted, Forked, Started, Completed) | HANDLERS
    outside = making.OUTSIDE
