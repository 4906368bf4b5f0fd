"""Views of a cognate run for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from events import Envelope, Event
from phases.cognate import findings, origins, panels, plan, report
from phases.cognate.events import CognateState, Completed
from runs.kinds import default_panels
from runs.kinds.origin import Ancestor
from runs.kinds.tasks import Start
from runs.panels.head import Head, listed
from runs.panels.panels import Panel
from studies.making.events import Making, Trained
from studies.observing import Observe
from studies.training_rows import Group
from studies.training_view import TrainingView
from weights.recipes import Train


class CognateView(TrainingView[CognateState]):
    """The part of a cognate run that is shown."""

    figure_of = "name"

    def trainings(self, state: CognateState) -> Mapping[str, Train]:
        """Return role → recipe of every model that the run trains."""
        return plan.trainings(state)

    def recipes(self, state: CognateState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes, the first weights included."""
        return dict(plan.recipes(state).values())

    def observations(self, state: CognateState) -> Sequence[Observe]:
        """Return all that the run measures, as far as it is known yet."""
        return findings.observations(state)

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
                own = data.get("trainable")
                adapters = f", adapters of {own:,} parameters" if own else ""
                return f"{data['parameters']:,} parameters{adapters}, {tokens:,} tokens of text"
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
        """Note steps, the last loss and the specialists' gain in the run's row of the run list."""
        super().row(entry, event)
        if isinstance(event, Trained):
            entry |= {"result": event.recipe_id}
        if isinstance(event, Completed):
            quality = {role: made.bits_per_byte for role, made in event.models.items()}
            entry |= listed(panels.FEWER, panels.gain(quality), panels.SLICE)

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

    def head(self, state: CognateState) -> Head:
        """Return the head: how much better specialists are on their own domains."""
        return default_panels.head(self, state, panels.result(state), panels.facts(state))

    def panels(self, state: CognateState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return training curves, figures, models and lineage."""
        return panels.panels(state, self.curves(state))

    def view(self, state: CognateState) -> dict[str, Any]:
        """Return the models by role, their curves and what was measured."""
        if state.started is None:
            return {"models": {}, "curves": {}, "bits_per_byte": {}}
        trainings = plan.trainings(state)
        made = {
            role: {
                "recipe_id": recipe.id,
                "digest": state.made[recipe.id].digest if recipe.id in state.made else None,
                "step": state.steps(trainings[role]) if role in trainings else 0,
                "steps": trainings[role].upto if role in trainings else 0,
            }
            for role, recipe in plan.models(state).items()
        }
        return {
            "models": made,
            "curves": self.curves(state),
            "bits_per_byte": findings.quality(state),
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

    def groups(self, state: CognateState) -> Sequence[Group]:
        """Return the base, then the specialists side by side."""
        chains = {role: (recipe,) for role, recipe in plan.trainings(state).items()}
        base = {role: chain for role, chain in chains.items() if role == plan.BASE}
        rest = {role: chain for role, chain in chains.items() if role != plan.BASE}
        return [group for group in (base, rest) if group]
