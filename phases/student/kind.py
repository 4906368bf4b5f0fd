"""The student as a kind of run: a smaller model learns from a given one, and is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from events import Event
from phases.student import findings, plan, sizes
from phases.student.config import StudentConfig
from phases.student.events import Completed, Forked, Started, StudentState, Submitted
from phases.student.view import StudentView
from runs.kinds.architecture import Architecture
from studies import comparison
from studies.events import MODEL
from studies.kind import answers
from studies.making.events import Making
from studies.observing import Observe
from studies.one_result import OneResult


class Student(StudentView, OneResult[StudentState]):
    """A smaller model, distilled from a given one (phase 8)."""

    name = "student"
    phase = 8
    package = "phases.student"
    title = "a student run"
    line = "train a smaller model of a given one's family to predict as that one does"
    config = StudentConfig
    submitted = Submitted
    forked = Forked
    state = StudentState
    completed = Completed
    result_title = "student"
    answers: ClassVar[Mapping[type[Event], type]] = answers(Started)
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES
    figure_units: ClassVar[Mapping[str, str]] = {
        "bits_per_byte": "bits/byte",
        "parameters": "count",
    }

    # ---- deciding ----------------------------------------------------------------------------

    def stages(self, state: StudentState) -> Iterator[Sequence[Making]]:
        """Yield the new weights, then the students that begin with them."""
        recipes = plan.recipes(state)
        yield [recipes.pop(plan.FRESH)]
        yield list(recipes.values())

    def questions(self, state: StudentState) -> Iterator[Mapping[str, Observe]]:
        """Yield what chooses among the students, then what all arms are compared by."""
        yield findings.choosing(state)
        yield findings.comparing(state)

    def conclusions(self, state: StudentState) -> dict[str, Any]:
        """Return the fields of `completed` that follow from what was made and measured."""
        return {
            "models": findings.results(state),
            "arms": comparison.arms(findings.found(state)),
            "chosen": findings.chosen(state),
            "figures": findings.figures(state),
        }

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: StudentState) -> int:
        """Return the bytes of weights, gradients and optimiser of one training, and of the teacher."""
        if state.started is None:
            return 0
        return 16 * state.started.parameters + 4 * state.started.model.parameters

    # ---- results -----------------------------------------------------------------------------

    def named(self, state: StudentState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes; `model` is there once it is known."""
        return findings.named(state)

    def architectures(
        self, config: StudentConfig, given: Mapping[str, Sequence[Architecture | None]]
    ) -> Mapping[str, Architecture]:
        """Return the student's, which follows from the given model's and the settings."""
        model = next(iter(given.get(MODEL, ())), None)
        found = sizes.of_student(model, config) if model else None
        return dict.fromkeys(self.roles(config), found) if found else {}

    def parameters(self, state: StudentState) -> int:
        """Return the number of the student's parameters."""
        return state.started.parameters
