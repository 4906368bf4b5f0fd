"""The pure part of the toy kind of run: settings, events, state, tasks and `due`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from agent_forge.events import Event, New
from agent_forge.runs import keys
from agent_forge.runs.event_types import Count as Whole
from agent_forge.runs.event_types import Digest
from agent_forge.runs.kinds import state as common_state
from agent_forge.runs.kinds.decide import NextWork
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record import events as common
from agent_forge.runs.record.device_setting import AUTO, DEVICE


class ToyConfig(BaseModel):
    """Settings of a toy run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(2, ge=0, le=10_000, description="Steps of the run.")
    width: int = Field(3, ge=1, le=1000, description="Tasks of a step; all are open at once.")
    seed: int = Field(0, description="Seed of the values.")
    device: str = Field(AUTO, description=DEVICE)
    slow: float = Field(0.0, ge=0, le=3600, description="Seconds that a task takes.")
    failing: str = Field("", description="Key of a task that always raises an error.")
    poison: str = Field("", description="Key of a task that kills its process.")
    divergent: str = Field("", description="Key of a task whose value is another each time.")


class Submitted(common.Submitted):
    """A toy run was asked for."""

    config: ToyConfig


class Forked(common.Forked):
    """A toy run was branched from another."""

    config: ToyConfig


class Started(common.Started):
    """The arithmetic was pinned."""

    arithmetic: str


class Counted(Event):
    """A task of a step was done."""

    type = "counted"

    step: Whole
    slot: Whole
    value: Whole
    #: SHA-256 of the value.
    digest: Digest
    seconds: float


class StepCompleted(Event):
    """All tasks of a step are answered or quarantined; `total` includes the steps before."""

    type = "step_completed"

    step: Whole
    total: Whole


class Completed(common.Completed):
    """All steps are done."""

    total: Whole
    digest: Digest


REGISTRY = common.registry((Submitted, Forked, Started, Counted, StepCompleted, Completed))


@dataclass
class ToyState(State):
    """State of a toy run. The answers of its tasks are where `State` puts them: in `answers`."""

    kind: ClassVar[str] = "toy"
    registry = REGISTRY
    handlers = common_state.handlers(Submitted, Forked, Started, Completed) | {
        StepCompleted: common_state.add("steps")
    }

    steps: list[StepCompleted] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The total of all closed steps."""
        return self.steps[-1].total if self.steps else 0


@dataclass(frozen=True)
class CountTask:
    """Task: count one slot of a step."""

    step: int
    slot: int

    @property
    def key(self) -> str:
        """The task's name within its run."""
        return f"count/{self.step}/{self.slot}"


def digest_of(number: int) -> str:
    """Return the SHA-256 of a number's decimal digits."""
    return hashlib.sha256(str(number).encode()).hexdigest()


def value_of(state: ToyState, task: CountTask) -> int:
    """Return the value of a task, 0 to 999: a function of the seed, its place and the total."""
    seed = state.submitted.config.seed
    return keys.key("toy", seed, task.step, task.slot, state.total) % 1000


def tasks_of(state: ToyState) -> list[CountTask]:
    """Return the tasks of the step that is not closed yet."""
    step = len(state.steps)
    return [CountTask(step, slot) for slot in range(state.submitted.config.width)]


def due(state: ToyState) -> NextWork:
    """Return the open tasks of the step, else the fact that closes it, else `completed`."""
    step, run = len(state.steps), state.run
    if step >= state.submitted.config.steps:
        done = Completed(
            lineage_digest=state.lineage_digest(),
            chain_head=state.head,
            total=state.total,
            digest=digest_of(state.total),
        )
        return NextWork(facts=[New(done, f"{run}/completed")])
    tasks = tasks_of(state)
    answered = [state.answers[task.key] for task in tasks if task.key in state.answers]
    waiting = [t for t in tasks if t.key not in {*state.answers, *state.quarantined}]
    if waiting:
        return NextWork(tasks=waiting)
    total = state.total + sum(event.value for event in answered if isinstance(event, Counted))
    return NextWork(facts=[New(StepCompleted(step=step, total=total), f"{run}/step/{step}")])
