"""Events, tasks and state of a quietstar run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from events import Event
from phases.quietstar.settings import QuietstarConfig
from runs.event_types import HalfPrecision, Part
from runs.record.device_setting import on_cpu
from runs.system.digests import Digest
from runs.system.integers import Count
from studies.events import GivenStarted, GivenSubmitted, ModelsCompleted, history, not_rounded


class Submitted(GivenSubmitted):
    """A quietstar run was asked for."""

    schema_version = 2

    config: QuietstarConfig


class Started(GivenStarted):
    """Model, text and profile were pinned."""

    schema_version = 2

    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None


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


@dataclass(frozen=True)
class Freeze:
    """Task: find the hard tokens of a slice."""

    recipe_id: str
    on: str

    @property
    def key(self) -> str:
        """`freeze/SLICE`."""
        return f"freeze/{self.on}"


QuietstarState = history(
    "quietstar",
    *(Submitted, Started, Completed, HardTokensFrozen),
    requests=(on_cpu,),
    starts=(not_rounded,),
)


def frozen(state: Any, on: str) -> HardTokensFrozen | None:
    """Return the hard tokens of a slice; None before they are known."""
    event = state.answers.get(Freeze("", on).key)
    return event if isinstance(event, HardTokensFrozen) else None
