"""Views of a quietstar run for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from events import Envelope, Event
from phases.quietstar import findings, panels, plan, report
from phases.quietstar.events import Completed, QuietstarState
from runs.kinds import default_panels
from runs.panels.head import Head, listed
from runs.panels.panels import Panel
from studies.events import MODEL
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.view import GivenView


class QuietstarView(GivenView[QuietstarState]):
    """The part of a quietstar run that is shown."""

    figure_of: ClassVar[str] = "part"

    def recipes(self, state: QuietstarState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes."""
        return plan.recipes(state)

    def observations(self, state: QuietstarState) -> Sequence[Observe]:
        """Return all that the run measures."""
        return findings.observations(state)

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        if type_ == "started":
            return (
                f"{data['model']['parameters']:,} parameters, windows of {data['context']} tokens"
            )
        if type_ == "hard_tokens_frozen":
            count = sum(len(places) for some in data["tokens"].values() for places in some)
            return f"{count:,} hard tokens of the slice {data['on']}"
        if type_ == "observed":
            hard = [v for name, v in data["values"].items() if name.startswith("hard/")]
            name = names.get(str(data["recipe_id"]), "")
            how = str(data["measure"]).partition("-hard-tokens")[0]
            how = f" ({how})" if how in ("thought", "shuffled", "pause") else ""
            return f"{name}{how}, {data['on']}: {sum(hard) / len(hard):.4f} nats a hard token"
        return super().gist(type_, data, names)

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        first, _, rest = key.partition("/")
        if first == "freeze":
            return f"find the hard tokens of the slice {rest}"
        return super().task_words(key, names)

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note steps, the last loss and the loss of hard tokens in the run's row of the run list."""
        super().row(entry, event)
        if isinstance(event, Completed):
            hard = event.arms[plan.THOUGHTS].hard.values()
            entry |= {"result": event.models[MODEL].recipe_id}
            entry |= listed(panels.HARD, math.fsum(hard) / len(hard), panels.TEST)

    def head(self, state: QuietstarState) -> Head:
        """Return the head: the loss of hard tokens with thoughts beside the better rival's."""
        return default_panels.head(self, state, panels.result(state), panels.facts(state))

    def panels(self, state: QuietstarState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return arms, gate, figures by domain, training curves and models."""
        return panels.panels(state, self.curves(state))

    def found(self, state: QuietstarState) -> Mapping[str, Observed]:
        """Return arm → what was observed on the test slice, of those that are measured."""
        return findings.found(state)

    def view(self, state: QuietstarState) -> dict[str, Any]:
        """Return the curves, and the nats a token of each arm by domain, hard ones and all."""
        if state.started is None:
            return {"curves": {}, "arms": {}}
        told = {arm: one.model_dump() for arm, one in findings.arms(state).items()}
        return {"curves": self.curves(state), "arms": told}

    def report(self, state: QuietstarState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), **report.report(state).model_dump()}

    def summary(self, state: QuietstarState, rows: Sequence[Envelope]) -> list[str]:
        """Return what a completed run has found."""
        return report.sentences(report.report(state)) if state.completed else []
