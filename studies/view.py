"""Views of a run that trains from a given model: lines of events, the model registry. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from events import Event
from runs.event_types import Figure
from runs.kinds.outcome import figure_text
from runs.kinds.tasks import Start
from runs.panels.head import listed
from studies import given_dtype
from studies.comparison import TEST
from studies.events import MODEL, GivenCompleted
from studies.making.making import MakingState
from studies.observing import Observed
from studies.training_panels import BITS
from studies.training_view import TrainingView
from weights.recipes import Train

S = TypeVar("S", bound=MakingState)


class GivenView(TrainingView[S]):
    """The part of a run that trains from a given model that is shown."""

    def trainings(self, state: S) -> Mapping[str, Train]:
        """Return name → recipe of every model that the run trains."""
        return given_dtype.trainings(self.recipes(state))

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        match type_:
            case "submitted":
                return f"{data['model']['name']}, {data['config']['tokens']:,} tokens"
            case "made" | "trained":
                return f"{name}: {data['digest'][:12]}"
            case "advanced":
                curve = data["curve"]
                return f"{name}, loss {curve[-1]['loss']:.3f}" if curve else name
            case "observed":
                values = data["values"].values()
                return f"{name}, {data['on']}: {sum(values) / len(values):.4f} bits per byte"
            case "completed":
                figures = {n: Figure(value=one["value"]) for n, one in data["figures"].items()}
                return ", ".join(figure_text(self, n, one) for n, one in figures.items())
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

    def found(self, state: S) -> Mapping[str, Observed]:
        """Return arm → what was observed on the test slice, of those that are measured."""
        raise NotImplementedError

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note steps, the last loss and the result's bits per byte in the run's row of the run list."""
        super().row(entry, event)
        if isinstance(event, GivenCompleted):
            done: Any = event  # every kind has figures, each at its own place in the schema
            bits = done.figures["bits_per_byte"].value
            entry |= {
                "result": event.models[MODEL].recipe_id,
                **listed(BITS, bits, f"{TEST} slice"),
            }

    def view(self, state: S) -> dict[str, Any]:
        """Return the curves, and what was measured of each arm."""
        if state.started is None:
            return {"curves": {}, "bits_per_byte": {}}
        return {
            "curves": self.curves(state),
            "bits_per_byte": {arm: dict(e.values) for arm, e in self.found(state).items()},
        }
