"""Views of a bitnet run for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.training_runs.training_view import TrainingView
from events import Envelope, Event
from phases.bitnet import findings, origins, panels, plan, report
from phases.bitnet.events import BitnetState, Completed
from runs.kinds import default_panels
from runs.kinds.origin import Ancestor
from runs.kinds.tasks import Start
from runs.panels.head import Head
from runs.panels.panels import Panel
from weights.making.events import Making
from weights.recipes import Train


class BitnetView(TrainingView[BitnetState]):
    """The part of a bitnet run that is shown."""

    def trainings(self, state: BitnetState) -> Mapping[str, Train]:
        """Return name → recipe of every model that the run trains."""
        return plan.trainings(state)

    def recipes(self, state: BitnetState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes."""
        return plan.recipes(state)

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
        super().row(entry, event)
        if isinstance(event, Completed):
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

    def head(self, state: BitnetState) -> Head:
        """Return the head: bits per byte of the ternary model beside those of full precision."""
        return default_panels.head(self, state, panels.result(state), panels.facts(state))

    def panels(self, state: BitnetState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return arms, training curves, figures by domain, ways of rounding and models."""
        return panels.panels(state, self.curves(state))

    def view(self, state: BitnetState) -> dict[str, Any]:
        """Return the curves, and what was measured of each arm."""
        if state.started is None:
            return {"curves": {}, "bits_per_byte": {}}
        seen = findings.found(state)
        return {
            "curves": self.curves(state),
            "bits_per_byte": {arm: dict(event.values) for arm, event in seen.items()},
        }

    def report(self, state: BitnetState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), **report.report(state).model_dump()}

    def summary(self, state: BitnetState, rows: Sequence[Envelope]) -> list[str]:
        """Return what a completed run has found."""
        return report.sentences(report.report(state)) if state.completed else []
