"""Views of a baking run for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from events import Envelope, Event
from phases.baking import findings, panels, plan, report
from phases.baking.events import BakingState, Completed, CycleSwitched, IterationEnded
from runs.kinds import default_panels
from runs.panels.head import Head, listed
from runs.panels.panels import Panel
from studies import comparison
from studies.events import MODEL
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.training_rows import Group
from studies.training_view import TrainingView
from studies.view import GivenView

_SUCCESS = (findings.SUCCESS, findings.PROMPTED, findings.PERSONAS)


class BakingView(GivenView[BakingState]):
    """The part of a baking run that is shown."""

    figure_of = "of"

    def recipes(self, state: BakingState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes, as far as it is known."""
        return plan.recipes(state)

    def observations(self, state: BakingState) -> Sequence[Observe]:
        """Return all that the run measures, as far as it is known yet."""
        return findings.observations(state)

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        match type_:
            case "submitted":
                return f"{data['model']['name']}, {', '.join(data['config']['families'])}"
            case "started":
                own = data.get("trainable")
                adapters = f", adapters of {own:,} parameters" if own else ""
                return f"{sum(data['counts'].values()):,} tasks, calls as {data['form']}{adapters}"
            case "sampled":
                turns = sum(one["trajectories"] for one in data["streams"].values())
                return f"{name}: {turns:,} turns"
            case "proposed":
                return f"{name}: {len(data['personas'])} personas"
            case "iteration_ended":
                ended = IterationEnded.model_validate(data)
                return f"iteration {ended.iteration}, {report.told(ended)}"
            case "cycle_switched":
                return report.reason(CycleSwitched.model_validate(data))
            case "observed" if data["measure"] in _SUCCESS:
                values = data["values"].values()
                return f"{name}, {data['on']}: {sum(values) / len(values):.1%} solved"
            case "observed" if data["measure"] == findings.DIVERGENCE:
                value = data["values"][findings.PROMPT]
                return f"{name}, {data['on']}: {value:.4f} nats a token"
        return super().gist(type_, data, names)

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        first, _, rest = key.partition("/")
        name = names.get(rest.rpartition("/")[2], "the model")
        if first == "sample":
            return f"let {name} work on tasks"
        if first == "propose":
            return f"let {name} propose personas"
        return super().task_words(key, names)

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note steps, the last loss and the success in the run's row of the run list."""
        TrainingView.row(self, entry, event)
        if isinstance(event, Completed):
            success = event.figures["success"].value
            entry |= {"result": event.models[MODEL].recipe_id}
            entry |= listed(panels.SUCCESS, success, comparison.TEST)

    def progress(self, state: BakingState) -> tuple[int, int | None]:
        """Return (steps that are done, steps in all); those are known once the cycles have ended."""
        if state.started is None:
            return 0, None
        done, of = super().progress(state)
        ended = bool(state.switches) and state.switches[-1].next is None
        most = state.submitted.config.iterations * state.submitted.config.steps
        return done, of if ended else most

    def yardstick(self, state: BakingState) -> dict[str, Any]:
        """Return the texts and the tool tasks that results are measured on."""
        tools = state.started.tasks if state.started else None
        return {**super().yardstick(state), "they were measured on other tool tasks": tools}

    def groups(self, state: BakingState) -> Sequence[Group]:
        """Return the trainings of the iterations, one after the other."""
        return [{name: (recipe,)} for name, recipe in self.trainings(state).items()]

    def head(self, state: BakingState) -> Head:
        """Return the head: success of the result beside that of the given model."""
        return default_panels.head(self, state, panels.result(state), panels.facts(state))

    def panels(self, state: BakingState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return success, scores, cycles, personas, training curves and models."""
        return panels.panels(state, self.curves(state))

    def found(self, state: BakingState) -> Mapping[str, Observed]:
        """Return arm → bits per byte on the test slice, of those that are measured."""
        return findings.found(state)

    def report(self, state: BakingState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), **report.report(state).model_dump()}

    def summary(self, state: BakingState, rows: Sequence[Envelope]) -> list[str]:
        """Return what a completed run has found."""
        return report.sentences(report.report(state)) if state.completed else []
