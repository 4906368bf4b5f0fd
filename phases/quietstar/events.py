"""Events, tasks and state of a quietstar run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from events import Event, Registry
from phases.quietstar.config import QuietstarConfig
from runs.event_types import Figure, HalfPrecision, Part, Profile, SourceRecord
from runs.kinds import state as common_state
from runs.record import events as common
from runs.record.device_setting import on_cpu
from runs.system.digests import Digest
from runs.system.integers import Count, Large
from studies.events import GivenSubmitted, ModelsCompleted, not_rounded
from studies.making import events as making
from studies.making.making import HANDLERS, MakingState
from studies.observing import Observed


class Submitted(GivenSubmitted):
    """A quietstar run was asked for."""

    schema_version = 2

    config: QuietstarConfig


class Forked(common.Forked):
    """A quietstar run was branched from another."""

    schema_version = 2

    config: QuietstarConfig


class Started(common.Started):
    """Model, text and profile were pinned."""

    schema_version = 2

    model: SourceRecord
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
    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None

    @property
    def machine(self) -> str | None:
        """The profile that a device must offer."""
        return self.profile.of_machine


class HardTokensFrozen(Event):
    """The held-out tokens that the given model predicts worst, noted before anything is trained."""

    type = "hard_tokens_frozen"

    recipe_id: Digest
    #: The slice of the data.
    on: str
    #: Domain → for each document the places of its hard tokens, from 0: the first that is predicted.
    tokens: dict[str, tuple[tuple[Count, ...], ...]]
    #: Domain → for each document the tokens that are predicted.
    sizes: dict[str, tuple[Count, ...]]
    #: Domain → the least −log p of a hard token, nats.
    thresholds: dict[str, float]
    seconds: float = Field(ge=0)


class ThoughtArm(Part):
    """An arm on the test slice."""

    recipe_id: Digest
    #: Domain → nats a hard token; domain → nats a token of all.
    hard: dict[str, float]
    every: dict[str, float]


class Completed(ModelsCompleted):
    """All arms are trained and compared, and the gate has decided what the result is."""

    arms: dict[str, ThoughtArm]
    #: The arm that is the result: the one with thoughts, or the given model, passed through.
    chosen: str
    figures: dict[str, Figure]


@dataclass(frozen=True)
class Freeze:
    """Task: find the hard tokens of a slice."""

    recipe_id: str
    on: str

    @property
    def key(self) -> str:
        """`freeze/SLICE`."""
        return f"freeze/{self.on}"


REGISTRY: Registry = common.registry(
    (Submitted, Forked, Started, *making.EVENTS, HardTokensFrozen, Observed, Completed),
    {
        (Submitted.type, 1): on_cpu,
        (Forked.type, 1): on_cpu,
        (Started.type, 1): not_rounded,
    },
)


@dataclass
class QuietstarState(MakingState):
    """State of a quietstar run. Observations are in `answers`, under their tasks' keys."""

    kind: ClassVar[str] = "quietstar"
    registry = REGISTRY
    handlers = common_state.handlers(Submitted, Forked, Started, Completed) | HANDLERS
    outside = making.OUTSIDE
