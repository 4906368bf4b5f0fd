"""The curriculum as a kind of run: training that follows success, beside fixed orders of its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from events import Event, New
from phases.curriculum import dreams, findings, plan
from phases.curriculum.config import Arm, CurriculumConfig
from phases.curriculum.dreams import Dream
from phases.curriculum.events import (
    Completed,
    CurriculumState,
    Dreamed,
    Forked,
    MixChosen,
    Started,
    Submitted,
)
from phases.curriculum.mixing import additions, mix
from phases.curriculum.view import CurriculumView
from runs.event_types import Measurement
from runs.kinds.tasks import Decision, Task
from studies.events import MODEL
from studies.kind import LISTED as GIVEN_LISTED
from studies.kind import answers, unanswered
from studies.making import making
from studies.making.events import Making
from studies.one_result import OneResult
from studies.training_plan import as_float32


class Curriculum(CurriculumView, OneResult[CurriculumState]):
    """A model is trained on tasks at the edge of what it can do (phase 5)."""

    name = "curriculum"
    phase = 5
    package = "phases.curriculum"
    title = "a curriculum run"
    line = "train a model on tasks at the edge of what it can do, and compare with fixed orders"
    config = CurriculumConfig
    submitted = Submitted
    forked = Forked
    state = CurriculumState
    completed = Completed
    result_title = "curriculum"
    #: Its items are problems; a gate of a pipeline measures texts.
    gives_items = False
    listed = GIVEN_LISTED | {MixChosen.type, Dreamed.type}
    answers: ClassVar[Mapping[type[Event], type]] = {**answers(Started), Dreamed: Dream}
    as_given = (MODEL,)
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES

    # ---- deciding ----------------------------------------------------------------------------

    def course(self, state: CurriculumState) -> Iterator[Decision]:
        """Yield: the given model in float32, what is next of each arm, what all are compared by."""
        yield making.next_of(state, [as_float32(state.started)], state.started.segment)
        yield self._trained(state)
        yield unanswered(state, findings.comparing(state).values())

    def _trained(self, state: CurriculumState) -> Decision:
        """Return what is next of each arm: choose a mix, train a segment, measure."""
        # Arms that have been alike so far have their models in common.
        facts, tasks = dict[str, New](), dict[str, Any]()
        for arm in state.submitted.config.arms:
            found = _next(state, arm)
            facts |= {new.key: new for new in found.facts}
            tasks |= {task.key: task for task in found.tasks}
        return Decision(facts=[*facts.values()]) if facts else Decision(tasks=[*tasks.values()])

    def unasked(self, state: CurriculumState, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, Dream) and isinstance(event, Dreamed):
            return dreams.unasked(task, event, state.submitted.config.dream_items)
        return super().unasked(state, task, event)

    def conclusions(self, state: CurriculumState) -> dict[str, Any]:
        """Return the fields of `completed` that follow from what was made and measured."""
        return {
            "models": findings.results(state),
            "arms": findings.arms(state),
            "chosen": findings.chosen(state),
            "figures": findings.figures(state),
        }

    def measurements(self, state: CurriculumState, digest: str) -> list[Measurement]:
        """Return nothing: the run measures no text."""
        return []

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: CurriculumState) -> int:
        """Return the bytes of weights, gradients and optimiser of one training."""
        return 0 if state.started is None else 16 * state.started.model.parameters

    def needs(self, task: Any) -> str | None:
        """Return the id of the model or snapshot that a task reads."""
        return task.recipe_id if isinstance(task, Dream) else super().needs(task)

    # ---- results -----------------------------------------------------------------------------

    def named(self, state: CurriculumState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes; `model` is there once it is known."""
        return findings.named(state)

    def measured(self, arm: Any) -> Mapping[str, float]:
        """Return the accuracy of an arm that was compared."""
        return {"accuracy": arm.accuracy}


def _next(state: CurriculumState, arm: Arm) -> Decision:
    """Return what is next of an arm: its segment, the measurement, dreams, or the next mix."""
    config: CurriculumConfig = state.submitted.config
    last = plan.points(state, arm)[-1]
    for recipe in (*plan.segments(state, arm)[-1:], last):
        decision = making.next_of(state, [recipe], state.started.segment)
        if decision.facts or decision.tasks:
            return decision
    task, number = findings.assessed(last), len(state.mixes.get(arm, ()))
    if task.key not in state.answers:
        return Decision(tasks=[task])
    if number == config.segments:
        return Decision()
    returned = findings.relapsed(state, arm)
    begins = plan.segments(state, arm)[-1].start if returned else last.id
    measured = findings.measured(state, begins)
    added, told = additions.added(config, arm, number), list[str]()
    if "dreams" in added and (cells := additions.dreamt(config, measured)):
        dream = Dream(begins, cells)
        dreamt: Any = state.answers.get(dream.key)
        if dreamt is None:
            return Decision(tasks=[dream])
        told = [*dreams.streams(dreamt)]
    before = state.mixes[arm][-1].frontiers if number else {}
    shares, frontiers = mix.choose(config, arm, number, measured, before)
    event = MixChosen(
        arm=arm,
        segment=number,
        mix=mix.with_text(config, mix.with_dreams(config, shares, told)),
        frontiers=frontiers,
        stage=additions.stage(config, arm, number),
        added=added,
        returned=returned,
    )
    return Decision(facts=[New(event, f"{state.run}/mix/{arm}/{number}")])
