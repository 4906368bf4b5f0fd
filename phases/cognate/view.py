"""Views of a cognate run for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.observing import Observed
from events import Envelope, Event
from phases.cognate import findings, origins, panels, plan, report
from phases.cognate.events import CognateState, Completed
from runs.kinds import default_panels
from runs.kinds.origin import Ancestor
from runs.kinds.tasks import Start
from runs.kinds.view import View
from runs.lists.tables import Kind, Table
from runs.panels.head import Head
from runs.panels.panels import Panel
from weights.making.events import Advanced, Trained
from weights.recipes import Train


class CognateView(View[CognateState]):
    """The part of a cognate run that is shown."""

    def names(self, state: CognateState) -> dict[str, str]:
        """Return recipe id → role, for models and for the snapshots of their trainings."""
        if state.started is None:
            return {}
        found = {
            event.recipe_id: f"{role} after {step} steps"
            for role, recipe in plan.trainings(state).items()
            for step, event in state.advanced.get(recipe.stem, {}).items()
        }
        return found | {id_: name for id_, (name, _) in plan.recipes(state).items()}

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        match type_:
            case "submitted":
                config = data["config"]
                base = data["base"]["name"] if data["base"] else "a base"
                return f"{config['preset']}: {base}, then {', '.join(config['domains'])}"
            case "started":
                tokens = sum(data["tokens"].values())
                return f"{data['parameters']:,} parameters, {tokens:,} tokens of text"
            case "made" | "trained":
                return f"{name}: {data['digest'][:12]}"
            case "advanced":
                curve = data["curve"]
                return f"{name}, loss {curve[-1]['loss']:.3f}" if curve else name
            case "observed":
                told = ", ".join(f"{k} {v:.4f}" for k, v in data["values"].items())
                return f"{name}, {data['measure'].partition('@')[0]}: {told}"
            case "completed":
                return ", ".join(data["models"])
        return None

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        first, _, rest = key.partition("/")
        name = names.get(rest.rpartition("/")[2], "the next segment")
        if first == "make":
            return f"train: {name}"
        if first == "observe":
            return f"measure {rest.partition('@')[0]} of {name}"
        return "prepare text and tokenizer" if key == Start.key else ""

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note steps and the last loss in the run's row of the run list."""
        if isinstance(event, Advanced) and event.curve:
            curve = [*json.loads(entry["curve"]), event.curve[-1].loss]
            done = (entry["done"] or 0) + event.step - event.begin
            entry |= {"done": done, "curve": json.dumps(curve)}
        elif isinstance(event, Trained):
            entry |= {"result": event.recipe_id}

    def models(self, event: Event, state: CognateState) -> list[dict[str, Any]]:
        """Return base and specialists for the model registry, once they are measured."""
        if not isinstance(event, Completed):
            return []
        folder, base = state.submitted.output_dir, event.models[plan.BASE].digest
        return [
            {
                "name": f"{state.run}-{role}",
                "kind": "base" if role == plan.BASE else "specialist",
                "digest": made.digest,
                "parameters": state.started.parameters,
                "path": f"{folder}/{role}" if folder else None,
                "metrics": made.bits_per_byte,
                "lineage": [] if role == plan.BASE else [base],
            }
            for role, made in event.models.items()
        ]

    def ancestry(self, state: CognateState, name: str) -> list[Ancestor]:
        """Return a model (the base without a name), what it started from, and the first weights."""
        return origins.ancestry(state, name or plan.BASE)

    def made(self, state: CognateState, digest: str) -> str | None:
        """Return the recipe id of the model with these weights, or None."""
        return next((id_ for id_, made in state.made.items() if made.digest == digest), None)

    def progress(self, state: CognateState) -> tuple[int, int | None]:
        """Return (steps of all trainings that are done, steps in all)."""
        if state.started is None:
            return 0, None
        trainings = plan.trainings(state).values()
        return sum(map(state.steps, trainings)), sum(recipe.upto for recipe in trainings)

    def head(self, state: CognateState) -> Head:
        """Return the head: how much better specialists are on their own domains."""
        return default_panels.head(self, state, panels.result(state), panels.facts(state))

    def panels(self, state: CognateState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return training curves, figures, models and lineage."""
        return panels.panels(state, self.curves(state))

    def curves(self, state: CognateState) -> dict[str, list[dict[str, float]]]:
        """Return role → points of its training: step, loss, norm of the gradient, rate."""
        if state.started is None:
            return {}
        return {
            role: [
                point.model_dump()
                for _, event in sorted(state.advanced.get(recipe.stem, {}).items())
                for point in event.curve
            ]
            for role, recipe in plan.trainings(state).items()
        }

    def view(self, state: CognateState) -> dict[str, Any]:
        """Return the models by role, their curves and what was measured."""
        if state.started is None:
            return {"models": {}, "curves": {}, "bits_per_byte": {}}
        made = {
            role: {
                "recipe_id": recipe.id,
                "digest": state.made[recipe.id].digest if recipe.id in state.made else None,
                "step": state.steps(recipe) if isinstance(recipe, Train) else 0,
                "steps": recipe.upto if isinstance(recipe, Train) else 0,
            }
            for role, recipe in plan.models(state).items()
        }
        return {
            "models": made,
            "curves": self.curves(state),
            "bits_per_byte": findings.quality(state),
        }

    def part(self, state: CognateState, name: str, **asked: Any) -> dict[str, Any]:
        """Return `lineage`: every recipe, by role. Raises NotFoundError for any other part."""
        if name != "lineage" or state.started is None:
            return super().part(state, name, **asked)
        return {
            name: {"id": id_, "recipe": recipe.model_dump(mode="json")}
            for id_, (name, recipe) in plan.recipes(state).items()
        }

    def report(self, state: CognateState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), **report.report(state).model_dump()}

    def summary(self, state: CognateState, rows: Sequence[Envelope]) -> list[str]:
        """Return the specialists' leads and their ways from the base, of a completed run."""
        return report.sentences(report.report(state)) if state.completed else []

    def unit_of(self, row: Envelope) -> int | None:
        """Return None: several trainings advance at once, so no step ends a unit of the run."""
        return None

    def ending(self, state: CognateState) -> dict[str, Any]:
        """Return the models of the message that the run has ended."""
        done = state.completed
        return {"models": {r: m.recipe_id for r, m in done.models.items()} if done else {}}

    def tables(self) -> Mapping[str, Any]:
        """Return the tables of training curves and of figures."""
        return {"training": _training, "figures": _figures}

    def tracked(self, state: CognateState, after: int) -> list[tuple[int, dict[str, Any]]]:
        """Return (step, row) for a tracker: steps of the base, then of the specialists side by side.

        A step of the specialists is told once all of them are behind it: several devices may train
        them at once, and a tracker takes no earlier step afterwards.
        """
        if state.started is None:
            return []
        trainings = plan.trainings(state)
        first = trainings[plan.BASE].upto if plan.BASE in trainings else 0
        rows: dict[int, dict[str, Any]] = {}
        for role, recipe in trainings.items():
            before = 0 if role == plan.BASE else first
            for event in state.advanced.get(recipe.stem, {}).values():
                for point in event.curve:
                    told = {f"{role}/{k}": v for k, v in point.model_dump().items() if k != "step"}
                    rows.setdefault(before + point.step, {"step": before + point.step}).update(told)
                if event.seconds and event.curve:
                    speed = event.tokens / event.seconds
                    rows[before + event.step][f"{role}/tokens_per_second"] = speed
        slowest = min((state.steps(r) for n, r in trainings.items() if n != plan.BASE), default=0)
        done = first + slowest if slowest or not first else state.steps(trainings[plan.BASE])
        return [(at, rows[at]) for at in sorted(rows) if after < at <= done]


def _training(state: CognateState, _rows: Sequence[Envelope]) -> Table:
    """Return the points of all trainings."""
    points = CognateView.curves(CognateView(), state)
    rows = [{"model": role, **point} for role, found in points.items() for point in found]
    columns: dict[str, Kind] = {
        "model": "text",
        "step": "int",
        "loss": "float",
        "norm": "float",
        "rate": "float",
    }
    return Table(columns, rows)


def _figures(state: CognateState, _rows: Sequence[Envelope]) -> Table:
    """Return every figure that was measured."""
    names = CognateView.names(CognateView(), state)
    rows = [
        {
            "model": names[event.recipe_id],
            "measure": event.measure,
            "slice": event.on,
            "name": name,
            "value": value,
        }
        for event in state.answers.values()
        if isinstance(event, Observed)
        for name, value in event.values.items()
    ]
    columns: dict[str, Kind] = {
        "model": "text",
        "measure": "text",
        "slice": "text",
        "name": "text",
        "value": "float",
    }
    return Table(columns, rows)
