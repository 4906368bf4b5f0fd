"""The bake as a kind of run: a prompt becomes weights, at a strength that is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from evaluation.trajectories import sampled
from evaluation.trajectories.sampled import Sample, Sampled
from events import Event
from phases.bake import findings, plan, stages
from phases.bake.config import BakeConfig
from phases.bake.events import BakeState, Completed, Forked, Started, Submitted
from phases.bake.view import BakeView
from runs.kinds.tasks import Decision, Task
from studies import comparison, training_plan
from studies.events import MODEL
from studies.kind import answers, unanswered
from studies.making import making
from studies.making.events import Making
from studies.one_result import OneResult


class Bake(BakeView, OneResult[BakeState]):
    """A prompt baked into a model (phase 6)."""

    name = "bake"
    phase = 6
    package = "phases.bake"
    title = "a bake"
    line = "bake a prompt into a model's weights: it answers without the prompt as with it"
    config = BakeConfig
    submitted = Submitted
    forked = Forked
    state = BakeState
    completed = Completed
    result_title = "baked"
    answers: ClassVar[Mapping[type[Event], type]] = {**answers(Started), Sampled: Sample}
    as_given = (MODEL,)
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES
    figure_units: ClassVar[Mapping[str, str]] = {
        "unprompted": "nats/token",
        "baked": "nats/token",
        "others": "nats/token",
        "unheard": "nats/token",
        **dict.fromkeys(("drift", "retention", "kept"), "share"),
    }

    # ---- deciding ----------------------------------------------------------------------------

    def course(self, state: BakeState) -> Iterator[Decision]:
        """Yield: the parent, its replies, what the prompts change; the stages; the test."""
        segment = state.started.segment
        yield making.next_of(state, [plan.parent(state.started)], segment)
        yield unanswered(state, [plan.sample(state)])
        yield unanswered(state, [stages.effect(state)])
        if stages.changes(state):
            for one in stages.known(state):
                yield from self._stage(state, one)
        yield unanswered(state, findings.comparing(state).values())

    def _stage(self, state: BakeState, one: stages.Known) -> Iterator[Decision]:
        """Yield: the start, the replies of its teacher, the training with its stops, what chooses."""
        segment = state.started.segment
        yield making.next_of(state, [one.start], segment)
        if one.sample is not None:
            yield unanswered(state, [one.sample])
        if one.full is None:
            return
        recipes = [candidate.recipe for candidate in one.candidates.values()]
        for candidate in one.candidates.values():
            if candidate.training is not None:
                yield making.next_of(state, [candidate.training], segment)
        yield making.next_of(state, [one.full], segment)
        yield making.next_of(state, recipes, segment)
        yield unanswered(state, [*findings.neutral(state), *findings.choices(one)])

    def conclusions(self, state: BakeState) -> dict[str, Any]:
        """Return the fields of `completed` that follow from what was made and measured."""
        figures = findings.figures(state)
        return {
            "models": findings.results(state),
            "arms": comparison.arms(findings.found(state)),
            "chosen": findings.chosen(state),
            "figures": figures,
            "met": findings.met(figures),
        }

    def unasked(self, state: BakeState, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, Sample) and isinstance(event, Sampled):
            return sampled.unasked(task, event)
        return super().unasked(state, task, event)

    def asked_for(self, given: Mapping[str, Any], config: Any) -> bool:
        """Return True if the settings are those; contexts that were not given are the default ones."""
        return super().asked_for({"contexts": config.contexts, **given}, config)

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: BakeState) -> int:
        """Return the bytes of weights, gradients and optimiser of the training, and of the parent."""
        if state.started is None:
            return 0
        return training_plan.memory(state.started.model.parameters, state.started.trainable)

    def needs(self, task: Any) -> str | None:
        """Return the id of the model or snapshot that a task reads."""
        return task.recipe_id if isinstance(task, Sample) else super().needs(task)

    # ---- results -----------------------------------------------------------------------------

    def named(self, state: BakeState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes; `model` is there once it is known."""
        return findings.named(state)
