"""Views of a bitnet run for lists, the API, trackers and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from events import Envelope, Event
from phases.bitnet import findings, origins, panels, plan, report
from phases.bitnet.events import BitnetState, Completed
from runs.kinds import default_panels
from runs.kinds.origin import Ancestor
from runs.panels.head import Head
from runs.panels.panels import Panel
from studies.events import MODEL
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.view import GivenView


class BitnetView(GivenView[BitnetState]):
    """The part of a bitnet run that is shown."""

    def recipes(self, state: BitnetState) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes."""
        return plan.recipes(state)

    def observations(self, state: BitnetState) -> Sequence[Observe]:
        """Return all that the run measures, as far as it is known yet."""
        return findings.observations(state)

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        if type_ != "started":
            return super().gist(type_, data, names)
        share = data["ternary"] / data["model"]["parameters"]
        return f"{data['model']['parameters']:,} parameters, {share:.0%} become ternary"

    def models(self, event: Event, state: BitnetState) -> list[dict[str, Any]]:
        """Return the ternary model and its master for the model registry, once they are measured."""
        if not isinstance(event, Completed):
            return []
        folder = state.submitted.output_dir
        return [
            {
                "name": f"{state.run}-{role}",
                "kind": "champion" if role == MODEL else "base",
                "digest": made.digest,
                "parameters": state.started.model.parameters,
                "path": f"{folder}/{role}" if folder else None,
                "metrics": event.arms[MODEL].bits_per_byte if role == MODEL else {},
                "lineage": [state.started.model.digest],
            }
            for role, made in event.models.items()
        ]

    def ancestry(self, state: BitnetState, name: str) -> list[Ancestor]:
        """Return a model (the ternary one without a name), and what it was made from."""
        return origins.ancestry(state, name or MODEL)

    def head(self, state: BitnetState) -> Head:
        """Return the head: bits per byte of the ternary model beside those of full precision."""
        return default_panels.head(self, state, panels.result(state), panels.facts(state))

    def panels(self, state: BitnetState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return arms, training curves, figures by domain, ways of rounding and models."""
        return panels.panels(state, self.curves(state))

    def found(self, state: BitnetState) -> Mapping[str, Observed]:
        """Return arm → what was observed on the test slice, of those that are measured."""
        return findings.found(state)

    def report(self, state: BitnetState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), **report.report(state).model_dump()}

    def summary(self, state: BitnetState, rows: Sequence[Envelope]) -> list[str]:
        """Return what a completed run has found."""
        return report.sentences(report.report(state)) if state.completed else []
