"""Baking as a kind of run: cycles of tools and personas, each baked at a part of its strength."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from evaluation.given_model_runs import comparison
from evaluation.given_model_runs.events import MODEL
from evaluation.given_model_runs.kind import LISTED as GIVEN_LISTED
from evaluation.given_model_runs.kind import GivenKind, answers, unanswered
from evaluation.given_model_runs.training_plan import as_float32
from evaluation.trajectories import sampled
from evaluation.trajectories.sampled import Sampled
from events import Event
from phases.baking import cycles, findings, origins, plan
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
from weights.making import making


class Baking(BakingView, GivenKind[BakingState]):
    """Tools and personas baked into a model, in cycles (phase 6)."""

    name = "baking"
    package = "phases.baking"
    title = "a baking run"
    line = "bake the use of tools, and personas, into a model, in cycles"
    config = BakingConfig
    submitted = Submitted
    forked = Forked
    state = BakingState
    completed = Completed
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
        yield making.next_of(state, [as_float32(state.started)], state.started.segment)
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
        return 20 * state.started.model.parameters if state.started else 0

    def needs(self, task: Any) -> str | None:
        """Return the id of the model or snapshot that a task reads."""
        if isinstance(task, CycleSample | Propose):
            return task.recipe_id
        return super().needs(task)

    # ---- results and work --------------------------------------------------------------------

    def result_id(self, state: BakingState) -> str | None:
        """Return the recipe id of the last model that was kept, once the cycles have ended."""
        if state.started is None:
            return None
        found = findings.named(state).get(MODEL)
        return found.id if found else None

    def roles(self, config: Any) -> Sequence[str]:
        """Return the baked model."""
        return origins.ROLES

    # ---- verification ------------------------------------------------------------------------

    def chosen(self, state: BakingState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the result), a name or an id means."""
        if which == "all":
            return [one.id for one in plan.recipes(state).values() if one.id in state.made]
        return [self.find(state, MODEL if which == "champion" else which)]


def _unproposed(config: BakingConfig, task: Propose, event: Proposed) -> str | None:
    """Return why proposals do not answer the task; None if they do."""
    if event.recipe_id != task.recipe_id:
        return "another model proposed personas than the one that was asked"
    if len(event.personas) > config.personas or len(set(event.personas)) < len(event.personas):
        return "it has more personas than were asked for, or one of them twice"
    if any(not text.strip() for text in event.personas):
        return "a persona has no text"
    return None
