"""Views of an experts run for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from events import Envelope, Event
from phases.experts import findings, panels, plan, report, stages
from phases.experts.events import Completed, ExpertsState, Scored
from phases.experts.search.generations import spaces
from phases.experts.solving import SOLVED
from runs.kinds import default_panels
from runs.kinds.view import Outlook
from runs.panels.head import Head, listed
from runs.panels.panels import Panel
from studies import comparison
from studies.events import MODEL
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.training_panels import BITS
from studies.training_view import TrainingView
from studies.view import GivenView


def _arms(state: ExpertsState) -> Collection[str]:
    """Return the arms of the search, as far as it is known which experts there are."""
    config = state.submitted.config
    own = stages.kept(state)
    known = plan.trainable(state.submitted, state.started)[: config.experts] if own is None else own
    return spaces(len(state.started.merges), known)


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
                    f"{data['arm']} {data['number']}: hypervolume {data['hypervolume']:.4g} after "
                    f"{data['evaluations']:,} mixtures"
                )
            case "fitted":
                told = ", ".join(f"{factor:+.2f}" for factor in data["factors"])
                return f"{data['domain']}: {told}"
            case "observed" if data["measure"] == SOLVED:
                values = data["values"].values()
                share = sum(values) / len(values)
                return f"{names.get(str(data['recipe_id']), 'model')}, {data['on']}: solves {share:.0%}"
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

    def outlook(
        self, state: ExpertsState, rehearsal: Any, under_way: Sequence[tuple[str, float]] = ()
    ) -> Outlook:
        """Return how far the run is in steps, and the time left, with that of mixtures to measure.

        A mixture costs what those before took on average; before the first the time is not known.
        """
        told = super().outlook(state, rehearsal, under_way)
        if state.completed or state.started is None:
            return told
        scores = [event for event in state.answers.values() if isinstance(event, Scored)]
        count, spent = sum(len(e.items) for e in scores), math.fsum(e.seconds for e in scores)
        left = len(_arms(state)) * state.submitted.config.evaluations - count
        if left <= 0:
            return told
        if not count or told.eta_s is None:
            return replace(told, inside=0.0, eta_s=None)
        hands = max(1, len(under_way))
        eta = told.eta_s + left * spent / count / hands
        done = state.spent.device
        return replace(told, inside=done / (done + eta * hands), eta_s=eta)

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note steps, the last loss and the result's bits per byte in the run's row of the run list."""
        TrainingView.row(self, entry, event)
        if isinstance(event, Completed):
            result = event.models[MODEL].recipe_id
            arm = event.arms[stages.arm_of(event.chosen) or event.chosen]
            bits = math.fsum(arm.bits_per_byte.values()) / len(arm.bits_per_byte)
            entry |= {"result": result, **listed(BITS, bits, comparison.TEST)}

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
