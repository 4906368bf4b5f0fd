"""Views of a bake for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from events import Envelope, Event
from phases.bake import behaviour, findings, panels, plan, report, stages
from phases.bake.events import BakeState, Completed
from runs.kinds import default_panels
from runs.panels.head import Head, listed
from runs.panels.panels import Panel
from studies import comparison
from studies.events import MODEL
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.training_rows import Group
from studies.view import GivenView
from weights.recipes import Train


class BakeView(GivenView[BakeState]):
    """The part of a bake that is shown."""

    figure_of = "of"

    def recipes(self, state: BakeState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes, as far as it is known."""
        return stages.recipes(state)

    def trainings(self, state: BakeState) -> Mapping[str, Train]:
        """Return name → recipe of every whole training."""
        return stages.trainings(state)

    def observations(self, state: BakeState) -> Sequence[Observe]:
        """Return all that the run measures, as far as it is known yet or expected."""
        if not plan.sampled(state):
            return ()
        return [*findings.observations(state), *findings.expected(state)]

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        if type_ == "submitted":
            prompts = data["config"]["prompts"]
            return f"{data['model']['name']}, {sum(map(len, prompts)):,} characters of prompts"
        if type_ == "started":
            own = data.get("trainable")
            adapters = f", adapters of {own:,} parameters" if own else ""
            return f"prompts of {data['prompt_tokens']:,} tokens{adapters}"
        if type_ == "sampled":
            count = sum(one["trajectories"] for one in data["streams"].values())
            return (
                f"{count:,} replies, {sum(o['tokens'] for o in data['streams'].values()):,} tokens"
            )
        if type_ == "observed" and data["measure"] == stages.DIVERGENCE:
            name = names.get(data["recipe_id"], data["recipe_id"][:12])
            return f"{name}, {data['on']}: {data['values'][stages.PROMPT]:.4f} nats a token"
        if type_ == "observed" and data["measure"] == behaviour.MEASURE:
            name, values = names.get(data["recipe_id"], data["recipe_id"][:12]), data["values"]
            told = ", ".join(f"{group} {value:.0%}" for group, value in values.items())
            return f"{name}, replies that pass: {told}"
        return super().gist(type_, data, names)

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        if key.startswith("sample/"):
            return "sample replies under the prompts"
        return super().task_words(key, names)

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note steps, the last loss and the ratio of divergences in the run's row of the run list."""
        super(GivenView, self).row(entry, event)
        if isinstance(event, Completed):
            entry["result"] = event.models[MODEL].recipe_id
            if "ratio" in event.figures:
                entry |= listed(
                    panels.RATIO, event.figures["ratio"].value, f"{comparison.TEST} slice"
                )

    def progress(self, state: BakeState) -> tuple[int, int | None]:
        """Return (steps that are done, steps in all); of prompts that change nothing, none."""
        if state.started is None:
            return 0, None
        done, _ = super().progress(state)
        return done, state.submitted.config.steps * len(stages.active(state))

    def groups(self, state: BakeState) -> Sequence[Group]:
        """Return the trainings of the prompts, one after the other."""
        return [{name: (recipe,)} for name, recipe in self.trainings(state).items()]

    def head(self, state: BakeState) -> Head:
        """Return the head: the ratio of divergences, and strength, drift and what others hear."""
        return default_panels.head(self, state, panels.result(state), panels.facts(state))

    def panels(self, state: BakeState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return the strength curve, divergences, arms, training curves and models."""
        return panels.panels(state, self.curves(state))

    def found(self, state: BakeState) -> Mapping[str, Observed]:
        """Return arm → bits per byte on the test slice, of those that are measured."""
        return findings.found(state)

    def report(self, state: BakeState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), **report.report(state).model_dump()}

    def summary(self, state: BakeState, rows: Sequence[Envelope]) -> list[str]:
        """Return what a completed run has found."""
        return report.sentences(report.report(state)) if state.completed else []
