"""Views of a curriculum run for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from events import Envelope, Event
from phases.curriculum import findings, panels, plan, report
from phases.curriculum.events import Completed, CurriculumState, MixChosen
from runs.kinds import default_panels
from runs.kinds.view import Outlook
from runs.panels.head import Head, listed
from runs.panels.panels import Panel
from studies import comparison, training_rows
from studies.events import MODEL
from studies.making.events import Advanced, Making
from studies.observing import Observed
from studies.paired_bits import mean
from studies.training_rows import Group
from studies.training_view import TrainingView
from studies.view import GivenView


class CurriculumView(GivenView[CurriculumState]):
    """The part of a curriculum run that is shown."""

    figure_of = "cell"

    def recipes(self, state: CurriculumState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes, as far as mixes are chosen."""
        return plan.recipes(state)

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        match type_:
            case "observed":
                name, values = names.get(str(data["recipe_id"]), ""), data["values"].values()
                return f"{name}, {data['on']}: {sum(values) / len(values):.1%} solved"
            case "mix_chosen":
                event = MixChosen.model_validate(data)
                moved = [
                    f"{family} {one.change} to level {one.level}"
                    for family, one in event.frontiers.items()
                    if one.change != "held"
                ]
                about = f"{event.arm}, segment {event.segment + 1}"
                beside = [one.replace("_", " ") for one in (event.stage, *event.added) if one]
                if event.returned:
                    beside.append("from before the burst")
                about += f" ({', '.join(dict.fromkeys(beside))})" if beside else ""
                return ": ".join([about, *([", ".join(moved)] if moved else [])])
            case "dreamed":
                name, some = names.get(str(data["recipe_id"]), ""), data["cells"].values()
                items, right = (sum(one[key] for one in some) for key in ("items", "right"))
                return f"{name}: {items} of {len(some)} cells, {right} of them right"
        return super().gist(type_, data, names)

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        if key.startswith("dream/"):
            return f"let {names.get(key.rpartition('/')[2], 'a model')} dream"
        return super().task_words(key, names).replace("text and model", "items and model")

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note steps, the last loss and the accuracy in the run's row of the run list."""
        TrainingView.row(self, entry, event)
        if isinstance(event, Completed):
            accuracy = event.figures["accuracy"].value
            entry |= {"result": event.models[MODEL].recipe_id}
            entry |= listed(panels.ACCURACY, accuracy, comparison.TEST)

    def progress(self, state: CurriculumState) -> tuple[int, int | None]:
        """Return (steps of all trainings that are done, steps in all)."""
        if state.started is None:
            return 0, None
        config = state.submitted.config
        recipes = [one for arm in config.arms for one in plan.segments(state, arm)]
        done = sum(state.steps(one) - one.first for one in recipes)
        return done, len(config.arms) * plan.bounds(config, state.started.context)[-1]

    def outlook(
        self, state: CurriculumState, rehearsal: Any, under_way: Sequence[tuple[str, float]] = ()
    ) -> Outlook:
        """Return the run's progress in steps, and the time left.

        The next mixes are not known: a step is taken to cost what those before cost, with what was
        measured between them.
        """
        done, of = self.progress(state)
        unit = f"{self.unit}s"
        if state.completed:
            return Outlook(done, of, 1.0, 0.0, unit)
        if not done or of is None:
            return Outlook(done, of, 0.0 if of else None, None, unit)
        segments = [event for some in state.advanced.values() for event in some.values()]
        measured = [event for event in state.answers.values() if isinstance(event, Observed)]
        spent = math.fsum(event.seconds for event in (*segments, *measured))
        left = spent * (of - done) / done / max(1, len(under_way))
        return Outlook(done, of, done / of, left, unit)

    def yardstick(self, state: CurriculumState) -> dict[str, Any]:
        """Return the items that results are measured on, and the tasks that use tools."""
        tools = state.started.tool_items if state.started else None
        return {**super().yardstick(state), "they were measured on other tool tasks": tools}

    def curves(self, state: CurriculumState) -> dict[str, list[dict[str, float]]]:
        """Return arm → points of its training: step, loss, norm of the gradient, rate."""
        if state.started is None:
            return {}
        return {
            arm: [
                point.model_dump()
                for recipe in plan.segments(state, arm)
                for _, event in sorted(_advanced(state, recipe.stem).items())
                for point in event.curve
            ]
            for arm in state.submitted.config.arms
        }

    def groups(self, state: CurriculumState) -> Sequence[Group]:
        """Return the arms side by side, each with its segments so far."""
        return [{arm: plan.segments(state, arm) for arm in state.submitted.config.arms}]

    def tracked(self, state: CurriculumState, after: int) -> list[tuple[int, dict[str, Any]]]:
        """Return (step, row) for a tracker: the points of the arms' trainings, side by side."""
        if state.started is None:
            return []
        arms = state.submitted.config.arms
        last = plan.bounds(state.submitted.config, state.started.context)[-1]
        return training_rows.rows(state, self.groups(state), after, dict.fromkeys(arms, last))

    def head(self, state: CurriculumState) -> Head:
        """Return the head: accuracy of the result beside that of the given model."""
        return default_panels.head(self, state, panels.result(state), panels.facts(state))

    def panels(self, state: CurriculumState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return arms, courses, levels, mixes, success by cell, training curves and models."""
        return panels.panels(state, self.curves(state))

    def found(self, state: CurriculumState) -> Mapping[str, Observed]:
        """Return arm → what was observed on the test slice, of those that are measured."""
        return findings.found(state)

    def view(self, state: CurriculumState) -> dict[str, Any]:
        """Return the curves, the accuracy of each arm, and the mixes."""
        if state.started is None:
            return {"curves": {}, "accuracy": {}, "mixes": {}}
        return {
            "curves": self.curves(state),
            "accuracy": {arm: mean(event) for arm, event in self.found(state).items()},
            "mixes": {arm: [e.mix for e in events] for arm, events in state.mixes.items()},
        }

    def report(self, state: CurriculumState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), **report.report(state).model_dump()}

    def summary(self, state: CurriculumState, rows: Sequence[Envelope]) -> list[str]:
        """Return what a completed run has found."""
        return report.sentences(report.report(state)) if state.completed else []


def _advanced(state: CurriculumState, stem: str) -> Mapping[int, Advanced]:
    return state.advanced.get(stem, {})
