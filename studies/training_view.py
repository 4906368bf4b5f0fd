"""Views of a run that trains models: names, curves, lineage, tables. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from events import Envelope, Event
from runs.kinds.tracking import Parts
from runs.kinds.view import OTHER_DATA, Outlook, View
from runs.lists.tables import Kind, Table
from studies import training_pace, training_rows
from studies.making.events import Advanced, Making
from studies.making.making import MakingState
from studies.observing import Observe, Observed
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


class TrainingView(View[S]):
    """The part of a run that trains models that is shown."""

    #: Column of the table of figures with what a figure is of.
    figure_of: ClassVar[str] = "domain"
    figures_of: ClassVar[Mapping[str, str]]
    figure_units: ClassVar[Mapping[str, str]]
    tracked_names = training_rows.NAMES

    def trainings(self, state: S) -> Mapping[str, Train]:
        """Return name → recipe of every model that a started run trains."""
        raise NotImplementedError

    def recipes(self, state: S) -> Mapping[str, Making]:
        """Return name → recipe of all that a started run makes."""
        raise NotImplementedError

    def observations(self, state: S) -> Sequence[Observe]:
        """Return all that a started run measures, as far as it is known yet."""
        return ()

    def names(self, state: S) -> dict[str, str]:
        """Return recipe id → name, for models and for the snapshots of their trainings."""
        if state.started is None:
            return {}
        found = {
            event.recipe_id: f"{name} after {step} steps"
            for name, recipe in self.trainings(state).items()
            for step, event in state.advanced.get(recipe.stem, {}).items()
        }
        return found | {recipe.id: name for name, recipe in self.recipes(state).items()}

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note steps and the last loss in the run's row of the run list."""
        if isinstance(event, Advanced) and event.curve:
            curve = [*json.loads(entry["curve"]), event.curve[-1].loss]
            done = (entry["done"] or 0) + event.step - event.begin
            entry |= {"done": done, "curve": json.dumps(curve)}

    def yardstick(self, state: S) -> dict[str, Any]:
        """Return the items that results are measured on."""
        return {OTHER_DATA: state.started.items if state.started else None}

    def made(self, state: S, digest: str) -> str | None:
        """Return the recipe id of the model with these weights, or None."""
        return next((id_ for id_, made in state.made.items() if made.digest == digest), None)

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
        unit = f"{self.unit}s"
        asked = self.observations(state)
        return training_pace.outlook(state, trainings, asked, under_way, unit)

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

    def part(self, state: S, name: str, **asked: Any) -> dict[str, Any]:
        """Return `lineage`: every recipe, by name. Raises NotFoundError for any other part."""
        if name != "lineage" or state.started is None:
            return super().part(state, name, **asked)
        return {
            name: {"id": recipe.id, "recipe": recipe.model_dump(mode="json")}
            for name, recipe in self.recipes(state).items()
        }

    def tables(self) -> Mapping[str, Any]:
        """Return the tables of training curves and of figures."""
        return {"training": self._training, "figures": self._figures}

    def _training(self, state: S, _rows: Sequence[Envelope]) -> Table:
        """Return the points of all trainings."""
        curves = self.curves(state).items()
        return Table(CURVE, [{"model": name, **point} for name, found in curves for point in found])

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
