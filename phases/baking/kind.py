"""Baking as a kind of run: cycles of tools and personas, each baked at a part of its strength."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from evaluation.trajectories import sampled
from evaluation.trajectories.sampled import Sampled
from events import Event
from phases.baking import cycles, findings, plan
from phases.baking.config import BakingConfig
from phases.baking.events import (
    BakingState,
    Completed,
    CycleSample,
    CycleSwitched,
    Forked,
    IterationEnded,
    Propose,
    Proposed,
    Started,
    Submitted,
)
from phases.baking.view import BakingView
from runs.kinds.tasks import Decision, Task
from studies import comparison, given_dtype, training_plan
from studies.events import MODEL
from studies.kind import LISTED as GIVEN_LISTED
from studies.kind import answers, unanswered
from studies.making import making
from studies.making.events import Making
from studies.one_result import OneResult
from studies.training_plan import as_float32


class Baking(BakingView, OneResult[BakingState]):
    """Tools and personas baked into a model, in cycles (phase 6)."""

    name = "baking"
    phase = 6
    package = "phases.baking"
    title = "a baking run"
    line = "bake the use of tools, and personas, into a model, in cycles"
    config = BakingConfig
    submitted = Submitted
    forked = Forked
    state = BakingState
    completed = Completed
    result_title = "baked"
    as_given = (MODEL,)
    listed = GIVEN_LISTED | {IterationEnded.type, CycleSwitched.type}
    answers: ClassVar[Mapping[type[Event], type]] = {
        **answers(Started),
        Sampled: CycleSample,
        Proposed: Propose,
    }
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES

    # ---- deciding ----------------------------------------------------------------------------

    def course(self, state: BakingState) -> Iterator[Decision]:
        """Yield: the given model and its turns to measure on, the cycles, the comparison."""
        start = as_float32(state.started)
        for recipe in (start, given_dtype.rounded(state.started, start)):
            yield making.next_of(state, [recipe], state.started.segment)
        yield unanswered(state, [plan.held(state.started)])
        yield unanswered(state, findings.opening(state).values())
        yield cycles.next_of(state)
        yield unanswered(state, findings.comparing(state).values())

    def conclusions(self, state: BakingState) -> dict[str, Any]:
        """Return the fields of `completed` that follow from what was made and measured."""
        return {
            "models": findings.results(state),
            "arms": comparison.arms(findings.found(state)),
            "chosen": plan.newest(state),
            "figures": findings.figures(state),
        }

    def unasked(self, state: BakingState, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, CycleSample) and isinstance(event, Sampled):
            return sampled.unasked(task, event)
        if isinstance(task, Propose) and isinstance(event, Proposed):
            return _unproposed(state.submitted.config, task, event)
        return super().unasked(state, task, event)

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: BakingState) -> int:
        """Return the bytes of weights, gradients and optimiser of a training, and of its teacher."""
        if state.started is None:
            return 0
        return training_plan.memory(state.started.model.parameters, state.started.trainable)

    def needs(self, task: Any) -> str | None:
        """Return the id of the model or snapshot that a task reads."""
        if isinstance(task, CycleSample | Propose):
            return task.recipe_id
        return super().needs(task)

    # ---- results -----------------------------------------------------------------------------

    def named(self, state: BakingState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes; `model` is there once it is known."""
        return findings.named(state)


def _unproposed(config: BakingConfig, task: Propose, event: Proposed) -> str | None:
    """Return why proposals do not answer the task; None if they do."""
    if event.recipe_id != task.recipe_id:
        return "another model proposed personas than the one that was asked"
    if len(event.personas) > config.personas or len(set(event.personas)) < len(event.personas):
        return "it has more personas than were asked for, or one of them twice"
    if any(not text.strip() for text in event.personas):
        return "a persona has no text"
    return None
