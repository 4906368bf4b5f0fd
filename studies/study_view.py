"""Views of a study: names, lines of events, curves, lineage, tables, head, panels, report. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from events import Envelope, Event
from runs.event_types import Figure
from runs.kinds import default_panels
from runs.kinds.outcome import figure_text
from runs.kinds.tasks import Start
from runs.kinds.tracking import Parts
from runs.kinds.view import OTHER_DATA, Outlook
from runs.lists.tables import Kind, Table
from runs.panels.head import Fact, Head, Result, listed
from runs.panels.panels import Metric, Panel
from studies import arm_panels, study_report, training_pace, training_panels, training_rows
from studies.comparison import TEST
from studies.declaration import Declaration
from studies.events import MODEL, ModelsCompleted
from studies.making.events import Advanced, Making
from studies.making.making import MakingState
from studies.observing import Observe, Observed
from studies.run import Run
from studies.tables import words
from studies.training_panels import BITS
from studies.training_rows import Group
from weights.recipes import Train

S = TypeVar("S", bound=MakingState)

#: Columns of the table of training curves.
CURVE: dict[str, Kind] = {
    "model": "text",
    "step": "int",
    "loss": "float",
    "norm": "float",
    "rate": "float",
}


class StudyView(Declaration[S]):
    """The part of a study that is shown."""

    curve_of = "losses of its trainings"
    result_name = "models"
    tracked_names = training_rows.NAMES
    #: Column of the table of figures with what a figure is of.
    figure_of: ClassVar[str] = "domain"
    #: Figure of a completed run that the run list shows, if the run has it, and its metric.
    row_figure: ClassVar[tuple[str, Metric]] = ("bits_per_byte", BITS)

    # ---- what is known -----------------------------------------------------------------------

    def recipes(self, state: S) -> Mapping[str, Making]:
        """Return name → recipe of all that a started run makes, as far as it is known."""
        return self.run(state).recipes

    def trainings(self, state: S) -> Mapping[str, Train]:
        """Return name → recipe of every model that a started run trains."""
        return self.run(state).trainings

    def observations(self, state: S) -> Sequence[Observe]:
        """Return all that a started run measures, as far as it is known."""
        return [*self.run(state).observations.values()]

    def made(self, state: S, digest: str) -> str | None:
        """Return the recipe id of the model with these weights, or None."""
        return next((id_ for id_, event in state.made.items() if event.digest == digest), None)

    def yardstick(self, state: S) -> dict[str, Any]:
        """Return the items that results are measured on."""
        return {OTHER_DATA: state.started.items if state.started else None}

    # ---- names and lines ---------------------------------------------------------------------

    def names(self, state: S) -> dict[str, str]:
        """Return recipe id → name, of the given model and of snapshots too."""
        run = self.begun(state)
        if run is None:
            return {}
        baseline_given = self.baseline in self.arms and self.baseline not in run.recipes
        names = {run.started.model.recipe_id: self.baseline} if baseline_given else {}
        for name, recipe in self.trainings(state).items():
            for step, event in state.advanced.get(recipe.stem, {}).items():
                names[event.recipe_id] = f"{name} after {step} steps"
        return names | {recipe.id: name for name, recipe in run.recipes.items()}

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        match type_:
            case "submitted":
                return f"{data['model']['name']}, {data['config']['tokens']:,} tokens"
            case "started":
                return self.started_line(data)
            case "made" | "trained":
                return f"{name}: {data['digest'][:12]}"
            case "advanced":
                curve = data["curve"]
                return f"{name}, loss {curve[-1]['loss']:.3f}" if curve else name
            case "observed":
                values = data["values"].values()
                return f"{name}, {data['on']}: {sum(values) / len(values):.4f} bits per byte"
            case "completed":
                figures = {n: Figure(value=entry["value"]) for n, entry in data["figures"].items()}
                return ", ".join(figure_text(self, n, figure) for n, figure in figures.items())
        return None

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        first, _, rest = key.partition("/")
        name = names.get(rest.rpartition("/")[2], "the next segment")
        if first == "make":
            return f"make: {name}"
        if first == "observe":
            return f"measure {name}"
        return "prepare text and model" if key == Start.key else ""

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note steps, the last loss and the figure of the result in the run's row of the run list."""
        if isinstance(event, Advanced) and event.curve:
            entry["curve"] = json.dumps([*json.loads(entry["curve"]), event.curve[-1].loss])
            entry["done"] = (entry["done"] or 0) + event.step - event.begin
        if isinstance(event, ModelsCompleted):
            entry |= {"result": event.models[MODEL].recipe_id}
            name, metric = self.row_figure
            if name in event.figures:
                entry |= listed(metric, event.figures[name].value, f"{TEST} slice")

    # ---- progress and curves -----------------------------------------------------------------

    def progress(self, state: S) -> tuple[int, int | None]:
        """Return (steps of all trainings that are done, steps in all)."""
        if state.started is None:
            return 0, None
        trainings = self.trainings(state).values()
        return sum(map(state.steps, trainings)), sum(recipe.upto for recipe in trainings)

    def outlook(
        self, state: S, rehearsal: Any, under_way: Sequence[tuple[str, float]] = ()
    ) -> Outlook:
        """Return the run's progress in steps, and the time left by the seconds of those done.

        No time is left to be told of a run whose trainings are not known yet.
        """
        trainings = () if state.started is None else tuple(self.trainings(state).values())
        if not trainings and not state.completed:
            return super().outlook(state, rehearsal, under_way)
        unit, tasks = f"{self.unit}s", self.observations(state)
        return training_pace.outlook(state, trainings, tasks, under_way, unit)

    def curves(self, state: S) -> dict[str, list[dict[str, float]]]:
        """Return name → points of its training: step, loss, norm of the gradient, rate."""
        if state.started is None:
            return {}
        return {
            name: [
                point.model_dump()
                for _, event in sorted(state.advanced.get(recipe.stem, {}).items())
                for point in event.curve
            ]
            for name, recipe in self.trainings(state).items()
        }

    def groups(self, state: S) -> Sequence[Group]:
        """Return the trainings for a tracker, in groups: models side by side, then those after them.

        By default all side by side. A run that learns of further trainings only adds groups.
        """
        return [{name: (recipe,) for name, recipe in self.trainings(state).items()}]

    def tracked(self, state: S, after: int) -> list[tuple[int, dict[str, Any]]]:
        """Return (step, row) for a tracker: the points of the trainings."""
        if state.started is None:
            return []
        return training_rows.rows(state, self.groups(state), after)

    def tracked_parts(self, state: S) -> Parts:
        """Return the models that the run trains, for a tracker."""
        groups = self.groups(state) if state.started else ()
        return {"model": {name for group in groups for name in group}}

    # ---- head, panels, report ----------------------------------------------------------------

    def headline(self, run: Run) -> Result | None:
        """Return the result beside the baseline; None until both are measured."""
        arms = words(self.arms_of(run))
        return arm_panels.headline(run, self.result_title, arms, self.baseline)

    def head(self, state: S) -> Head:
        """Return the head: the result beside the baseline, and facts."""
        run = self.begun(state)
        if run is None:
            return default_panels.head(self, state)
        shown = (
            Fact(name=name, value=value, unit=unit)
            for name, (value, unit) in self.facts(run).items()
        )
        facts = (*training_panels.speed(state, self.trainings(state).values()), *shown)
        if (result := self.headline(run)) and result.model:
            called = self.names(state).get(result.model, "")
            result = result.model_copy(update={"called": called})
        return default_panels.head(self, state, result, facts)

    def panels(self, state: S, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return arms, domains, training curves, the study's own panels, and models."""
        run = self.begun(state)
        return [] if run is None else study_report.panels(self, run, self.curves(state))

    def whole_report(self, run: Run) -> dict[str, Any]:
        """Return the report of a run that has completed, as its folder has it."""
        return study_report.report(self, run)

    def report(self, state: S, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), **self.whole_report(self.run(state))}

    def summary(self, state: S, rows: Sequence[Envelope]) -> list[str]:
        """Return what a completed run has found."""
        return self.sentences(self.run(state)) if state.completed else []

    def lines(self, state: S) -> list[str]:
        """Return the report of a completed run as lines of text for a terminal."""
        return study_report.lines(self, self.run(state))

    def card(self, run: Run, role: str) -> str:
        """Return a model's card."""
        return study_report.card(self, run, self.card_words(run, role))

    def view(self, state: S) -> dict[str, Any]:
        """Return the curves, and what was measured of each arm."""
        run = self.begun(state)
        observations = run.seen if run else {}
        return {
            "curves": self.curves(state),
            "bits_per_byte": {arm: dict(event.values) for arm, event in observations.items()},
        }

    def part(self, state: S, name: str, **query: Any) -> dict[str, Any]:
        """Return `lineage`: every recipe, by name. Raises NotFoundError for any other part."""
        if name != "lineage" or state.started is None:
            return super().part(state, name, **query)
        return {
            name: {"id": recipe.id, "recipe": recipe.model_dump(mode="json")}
            for name, recipe in self.recipes(state).items()
        }

    # ---- tables ------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, Any]:
        """Return the tables of training curves and of figures."""
        return {"training": self._training, "figures": self._figures}

    def _training(self, state: S, _rows: Sequence[Envelope]) -> Table:
        """Return the points of all trainings."""
        curves = self.curves(state).items()
        rows = [{"model": name, **point} for name, points in curves for point in points]
        return Table(CURVE, rows)

    def _figures(self, state: S, _rows: Sequence[Envelope]) -> Table:
        """Return every figure that was measured."""
        names, of = self.names(state), self.figure_of
        rows = [
            {
                "model": names[event.recipe_id],
                "measure": event.measure,
                "slice": event.on,
                of: what,
                "value": value,
            }
            for event in state.answers.values()
            if isinstance(event, Observed)
            for what, value in event.values.items()
        ]
        text: dict[str, Kind] = dict.fromkeys(("model", "measure", "slice", of), "text")
        return Table({**text, "value": "float"}, rows)
