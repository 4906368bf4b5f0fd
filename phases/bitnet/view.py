"""Views of a bitnet run for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.observing import Observed
from events import Envelope, Event
from phases.bitnet import findings, origins, panels, plan, report
from phases.bitnet.events import BitnetState, Completed
from runs.kinds import default_panels
from runs.kinds.origin import Ancestor
from runs.kinds.tasks import Start
from runs.kinds.view import View
from runs.lists.tables import Kind, Table
from runs.panels.head import Head
from runs.panels.panels import Panel
from weights.making.events import Advanced


class BitnetView(View[BitnetState]):
    """The part of a bitnet run that is shown."""

    def names(self, state: BitnetState) -> dict[str, str]:
        """Return recipe id → name, for models and for the snapshots of their trainings."""
        if state.started is None:
            return {}
        found = {
            event.recipe_id: f"{name} after {step} steps"
            for name, recipe in plan.trainings(state).items()
            for step, event in state.advanced.get(recipe.stem, {}).items()
        }
        return found | {recipe.id: name for name, recipe in plan.recipes(state).items()}

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        match type_:
            case "submitted":
                return f"{data['model']['name']}, {data['config']['tokens']:,} tokens"
            case "started":
                share = data["ternary"] / data["model"]["parameters"]
                return f"{data['model']['parameters']:,} parameters, {share:.0%} become ternary"
            case "made" | "trained":
                return f"{name}: {data['digest'][:12]}"
            case "advanced":
                curve = data["curve"]
                return f"{name}, loss {curve[-1]['loss']:.3f}" if curve else name
            case "observed":
                values = data["values"].values()
                return f"{name}, {data['on']}: {sum(values) / len(values):.4f} bits per byte"
            case "completed":
                return ", ".join(f"{k} {v['value']:.4f}" for k, v in data["figures"].items())
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
        """Note steps, the last loss and the retention in the run's row of the run list."""
        if isinstance(event, Advanced) and event.curve:
            curve = [*json.loads(entry["curve"]), event.curve[-1].loss]
            done = (entry["done"] or 0) + event.step - event.begin
            entry |= {"done": done, "curve": json.dumps(curve)}
        elif isinstance(event, Completed):
            score = event.figures["retention"].value
            entry |= {"result": event.models[plan.MODEL].recipe_id, "score": score}

    def models(self, event: Event, state: BitnetState) -> list[dict[str, Any]]:
        """Return the ternary model and its master for the model registry, once they are measured."""
        if not isinstance(event, Completed):
            return []
        folder = state.submitted.output_dir
        return [
            {
                "name": f"{state.run}-{role}",
                "kind": "champion" if role == plan.MODEL else "base",
                "digest": made.digest,
                "parameters": state.started.model.parameters,
                "path": f"{folder}/{role}" if folder else None,
                "metrics": event.arms[plan.MODEL].bits_per_byte if role == plan.MODEL else {},
                "lineage": [state.started.model.digest],
            }
            for role, made in event.models.items()
        ]

    def ancestry(self, state: BitnetState, name: str) -> list[Ancestor]:
        """Return a model (the ternary one without a name), and what it was made from."""
        return origins.ancestry(state, name or plan.MODEL)

    def made(self, state: BitnetState, digest: str) -> str | None:
        """Return the recipe id of the model with these weights, or None."""
        return next((id_ for id_, made in state.made.items() if made.digest == digest), None)

    def progress(self, state: BitnetState) -> tuple[int, int | None]:
        """Return (steps of all trainings that are done, steps in all)."""
        if state.started is None:
            return 0, None
        trainings = plan.trainings(state).values()
        return sum(map(state.steps, trainings)), sum(recipe.upto for recipe in trainings)

    def head(self, state: BitnetState) -> Head:
        """Return the head: bits per byte of the ternary model beside those of full precision."""
        return default_panels.head(self, state, panels.result(state), panels.facts(state))

    def panels(self, state: BitnetState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return arms, training curves, figures by domain, ways of rounding and models."""
        return panels.panels(state, self.curves(state))

    def curves(self, state: BitnetState) -> dict[str, list[dict[str, float]]]:
        """Return name → points of its training: step, loss, norm of the gradient, rate."""
        if state.started is None:
            return {}
        return {
            name: [
                point.model_dump()
                for _, event in sorted(state.advanced.get(recipe.stem, {}).items())
                for point in event.curve
            ]
            for name, recipe in plan.trainings(state).items()
        }

    def view(self, state: BitnetState) -> dict[str, Any]:
        """Return the curves, and what was measured of each arm."""
        if state.started is None:
            return {"curves": {}, "bits_per_byte": {}}
        seen = findings.found(state)
        return {
            "curves": self.curves(state),
            "bits_per_byte": {arm: dict(event.values) for arm, event in seen.items()},
        }

    def part(self, state: BitnetState, name: str, **asked: Any) -> dict[str, Any]:
        """Return `lineage`: every recipe, by name. Raises NotFoundError for any other part."""
        if name != "lineage" or state.started is None:
            return super().part(state, name, **asked)
        return {
            name: {"id": recipe.id, "recipe": recipe.model_dump(mode="json")}
            for name, recipe in plan.recipes(state).items()
        }

    def report(self, state: BitnetState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), **report.report(state).model_dump()}

    def summary(self, state: BitnetState, rows: Sequence[Envelope]) -> list[str]:
        """Return what a completed run has found."""
        return report.sentences(report.report(state)) if state.completed else []

    def ending(self, state: BitnetState) -> dict[str, Any]:
        """Return the models of the message that the run has ended."""
        done = state.completed
        return {"models": {r: m.recipe_id for r, m in done.models.items()} if done else {}}

    def tables(self) -> Mapping[str, Any]:
        """Return the tables of training curves and of figures."""
        return {"training": _training, "figures": _figures}


def _training(state: BitnetState, _rows: Sequence[Envelope]) -> Table:
    """Return the points of all trainings."""
    points = BitnetView.curves(BitnetView(), state)
    rows = [{"model": name, **point} for name, found in points.items() for point in found]
    columns: dict[str, Kind] = {
        "model": "text",
        "step": "int",
        "loss": "float",
        "norm": "float",
        "rate": "float",
    }
    return Table(columns, rows)


def _figures(state: BitnetState, _rows: Sequence[Envelope]) -> Table:
    """Return every figure that was measured."""
    names = BitnetView.names(BitnetView(), state)
    rows = [
        {
            "model": names[event.recipe_id],
            "measure": event.measure,
            "slice": event.on,
            "domain": domain,
            "value": value,
        }
        for event in state.answers.values()
        if isinstance(event, Observed)
        for domain, value in event.values.items()
    ]
    text: dict[str, Kind] = dict.fromkeys(("model", "measure", "slice", "domain"), "text")
    return Table({**text, "value": "float"}, rows)
