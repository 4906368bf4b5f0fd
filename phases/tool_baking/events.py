"""Events, tasks and state of a baking run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from evaluation.trajectories.sampled import Sample, Sampled
from events import Event
from phases.tool_baking.settings import BakingConfig, Cycle
from runs.event_types import HalfPrecision, SourceRecord
from runs.record.device_setting import on_cpu
from runs.system.digests import Digest
from runs.system.integers import Count, Large
from studies.events import (
    GivenCompleted,
    GivenSubmitted,
    TextStarted,
    all_weights,
    history,
    not_rounded,
    without_adapters,
)

Outcome = Literal["kept", "reverted", "nothing"]
Reason = Literal["plateau", "reverted", "nothing", "limit"]


class Submitted(GivenSubmitted):
    """A baking run was asked for."""

    schema_version = 4

    config: BakingConfig


class Started(TextStarted):
    """Model, text, tasks and profile were pinned."""

    schema_version = 3

    model: SourceRecord
    #: BLAKE2b of the tool tasks.
    tasks: Digest
    #: "FAMILY/SLICE" → number of tool tasks.
    counts: dict[str, Count]
    #: Form of calls, and the prompt that tells of the tools.
    form: str
    prompt: str
    #: Parameters of the adapters that are trained; None: all weights are.
    trainable: Large | None = None
    #: True if each iteration draws random numbers of its own; in earlier runs all had the same.
    drawn_apart: bool = True
    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None


class Proposed(Event):
    """A model proposed personas."""

    type = "proposed"

    recipe_id: Digest
    #: Different texts, each a prompt.
    personas: tuple[str, ...]
    seconds: float = Field(ge=0)


class IterationEnded(Event):
    """An iteration of a cycle was baked and measured, or had nothing to bake."""

    type = "iteration_ended"

    #: Number of the iteration, from 1.
    iteration: Count
    cycle: Cycle
    outcome: Outcome
    #: Success on the selection slice of the model before, and of the baked one.
    before: float
    after: float | None
    #: The persona that was baked.
    persona: str | None
    #: Why nothing was baked; empty if something was.
    why: str


class CycleSwitched(Event):
    """A cycle has ended: another one goes on, or none."""

    type = "cycle_switched"

    #: Number of the last iteration of the cycle.
    iteration: Count
    ended: Cycle
    next: Cycle | None
    reason: Reason
    #: Scores of the cycle, its start first, and the slope of their moving average if there are enough.
    scores: tuple[float, ...]
    slope: float | None


class Completed(GivenCompleted):
    """The cycles have ended, and the result is compared with the given model."""

    #: The recipe's name that is the result.
    chosen: str


@dataclass(frozen=True)
class Propose:
    """Task: let a model propose personas."""

    recipe_id: str

    @property
    def key(self) -> str:
        """`propose/ID`, where ID is that of the model's recipe."""
        return f"propose/{self.recipe_id}"


@dataclass(frozen=True)
class CycleSample(Sample):
    """Task: let a model work on tool tasks under a prompt, and write what it says."""

    #: The cycle that the prompt is of; "held": turns to measure on, under the prompt of the tools.
    cycle: str = "tools"

    @property
    def key(self) -> str:
        """`sample/CYCLE/ID`, where ID is that of the writer's recipe."""
        return f"sample/{self.cycle}/{self.recipe_id}"


def _drawn_alike(data: dict[str, Any]) -> dict[str, Any]:
    """Return `started` of a run whose iterations drew the same random numbers."""
    return {**without_adapters(data), "drawn_apart": False}


BakingState = history(
    "baking",
    *(Submitted, Started, Completed),
    *(Sampled, Proposed, IterationEnded, CycleSwitched),
    requests=(all_weights, dict, on_cpu),
    starts=(_drawn_alike, not_rounded),
)
