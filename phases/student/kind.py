"""The student as a kind of run: a smaller model learns from a given one, and is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from evaluation.given_model_runs.kind import GivenKind, answers
from events import Event, New
from phases.student import findings, origins, plan
from phases.student.config import StudentConfig
from phases.student.events import Completed, Forked, Started, StudentState, Submitted
from phases.student.view import StudentView
from runs.kinds.tasks import Decision
from weights.making import making


class Student(StudentView, GivenKind[StudentState]):
    """A smaller model, distilled from a given one (phase 8)."""

    name = "student"
    package = "phases.student"
    title = "a student run"
    line = "train a smaller model of a given one's family to predict as that one does"
    config = StudentConfig
    submitted = Submitted
    forked = Forked
    state = StudentState
    answers: ClassVar[Mapping[type[Event], type]] = answers(Started)
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES

    # ---- deciding ----------------------------------------------------------------------------

    def due(self, state: StudentState) -> Decision:
        """Return what there is to do after `started`: train the students, choose, compare, end."""
        recipes = plan.recipes(state)
        for wanted in ([recipes.pop(plan.FRESH)], list(recipes.values())):
            decision = making.next_of(state, wanted, state.started.segment)
            if decision.facts or decision.tasks:
                return decision
        for asked in (findings.choosing(state), findings.comparing(state)):
            if tasks := [task for task in asked.values() if task.key not in state.answers]:
                return Decision(tasks=tasks)
        done = Completed(
            lineage_digest=state.lineage_digest(),
            chain_head=state.head,
            **self.conclusions(state),
        )
        return Decision(facts=[New(done, f"{state.run}/completed")])

    def conclusions(self, state: StudentState) -> dict[str, Any]:
        """Return the fields of `completed` that follow from what was made and measured."""
        return {
            "models": findings.results(state),
            "arms": findings.arms(state),
            "chosen": findings.chosen(state),
            "figures": findings.figures(state),
        }

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: StudentState) -> int:
        """Return the bytes of weights, gradients and optimiser of one training, and of the teacher."""
        if state.started is None:
            return 0
        return 16 * state.started.parameters + 4 * state.started.model.parameters

    # ---- results and work --------------------------------------------------------------------

    def result_id(self, state: StudentState) -> str | None:
        """Return the recipe id of the better student once it is known."""
        if state.started is None:
            return None
        found = findings.named(state).get(plan.MODEL)
        return found.id if found else None

    def roles(self, config: Any) -> Sequence[str]:
        """Return the student."""
        return origins.ROLES

    # ---- verification ------------------------------------------------------------------------

    def chosen(self, state: StudentState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the result), an arm or an id means."""
        if which == "all":
            return [one.id for one in plan.recipes(state).values() if one.id in state.made]
        return [self.find(state, plan.MODEL if which == "champion" else which)]
