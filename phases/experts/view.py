"""Views of an experts run for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.given_model_runs.events import MODEL
from evaluation.given_model_runs.view import GivenView
from evaluation.observing import Observe, Observed
from evaluation.training_runs.training_view import TrainingView
from events import Envelope, Event
from phases.experts import findings, panels, report, stages
from phases.experts.events import Completed, ExpertsState
from runs.kinds import default_panels
from runs.panels.head import Head
from runs.panels.panels import Panel
from weights.making.events import Making


class ExpertsView(GivenView[ExpertsState]):
    """The part of an experts run that is shown."""

    def recipes(self, state: ExpertsState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes, as far as it is known."""
        return stages.recipes(state)

    def observations(self, state: ExpertsState) -> Sequence[Observe]:
        """Return all that the run measures, as far as it is known yet."""
        return findings.observations(state)

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        match type_:
            case "started":
                return f"{data['numbers']:,} singular values, {len(data['merges'])} further models"
            case "generation_bred":
                return f"{data['arm']} {data['number']}: {len(data['mixtures'])} mixtures"
            case "scored":
                return f"{data['arm']} {data['number']}: {len(data['items'])} measured"
            case "generation_ended":
                return (
                    f"{data['arm']} {data['number']}: hypervolume {data['hypervolume']:.5f} after "
                    f"{data['evaluations']:,} mixtures"
                )
            case "fitted":
                told = ", ".join(f"{factor:+.2f}" for factor in data["factors"])
                return f"{data['domain']}: {told}"
            case "routed":
                return f"{sum(map(len, data['choices'].values()))} windows"
        return super().gist(type_, data, names)

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        first, *rest = key.split("/")
        if first == "score":
            return f"measure mixtures of generation {rest[1]} of {rest[0]}"
        if first == "fit":
            return f"find the mixture of {rest[0]}"
        return "choose experts by beginnings" if key == "route" else super().task_words(key, names)

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note steps, the last loss and the gain in the run's row of the run list."""
        TrainingView.row(self, entry, event)
        if isinstance(event, Completed):
            gain = event.figures["gain"].value
            entry |= {"result": event.models[MODEL].recipe_id, "score": gain}

    def head(self, state: ExpertsState) -> Head:
        """Return the head: bits per byte of the result beside those of the given model."""
        return default_panels.head(self, state, panels.result(state), panels.facts(state))

    def panels(self, state: ExpertsState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return arms, gains by domain, front, hypervolume, training curves and models."""
        return panels.panels(state, self.curves(state))

    def found(self, state: ExpertsState) -> Mapping[str, Observed]:
        """Return arm → what was observed on the test slice, of those that are measured."""
        return findings.found(state)

    def report(self, state: ExpertsState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), **report.report(state).model_dump()}

    def summary(self, state: ExpertsState, rows: Sequence[Envelope]) -> list[str]:
        """Return what a completed run has found."""
        return report.sentences(report.report(state)) if state.completed else []
