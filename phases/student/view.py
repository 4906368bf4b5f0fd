"""Views of a student run for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from events import Envelope
from phases.student import findings, panels, plan, report
from phases.student.events import StudentState
from runs.kinds import default_panels
from runs.panels.head import Head
from runs.panels.panels import Panel
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.view import GivenView


class StudentView(GivenView[StudentState]):
    """The part of a student run that is shown."""

    def recipes(self, state: StudentState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes."""
        return plan.recipes(state)

    def observations(self, state: StudentState) -> Sequence[Observe]:
        """Return all that the run measures, as far as it is known yet."""
        return findings.observations(state)

    def names(self, state: StudentState) -> dict[str, str]:
        """Return recipe id → name, of the given model too."""
        if state.started is None:
            return {}
        return {state.started.model.recipe_id: plan.TEACHER, **super().names(state)}

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        if type_ != "started":
            return super().gist(type_, data, names)
        return f"{data['parameters']:,} parameters of {data['model']['parameters']:,}"

    def head(self, state: StudentState) -> Head:
        """Return the head: bits per byte of the student beside those of the given model."""
        return default_panels.head(self, state, panels.result(state), panels.facts(state))

    def panels(self, state: StudentState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return arms, training curves, figures by domain and models."""
        return panels.panels(state, self.curves(state))

    def found(self, state: StudentState) -> Mapping[str, Observed]:
        """Return arm → what was observed on the test slice, of those that are measured."""
        return findings.found(state)

    def report(self, state: StudentState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), **report.report(state).model_dump()}

    def summary(self, state: StudentState, rows: Sequence[Envelope]) -> list[str]:
        """Return what a completed run has found."""
        return report.sentences(report.report(state)) if state.completed else []
