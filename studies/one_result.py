"""Kinds of run that train from a given model and whose result is one of the models that they make.

A kind says which recipe each name means, `model` first once the result is known; that decides what
the run is found by, what another run reads of it, and what the model registry lists. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from events import Envelope, Event
from runs.errors import NotFoundError
from runs.kinds.origin import Ancestor, Origin
from studies import origins
from studies.events import MODEL
from studies.kind import GivenKind
from studies.making.events import Making
from studies.making.making import MakingState
from studies.training_plan import as_float32
from studies.view import GivenView

S = TypeVar("S", bound=MakingState)


class OneResult(GivenView[S], GivenKind[S]):
    """A run that ends with one model, the role `model`."""

    #: What the result is called where it has no other name.
    result_title: ClassVar[str]

    def named(self, state: S) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes; `model` is there once it is known."""
        raise NotImplementedError

    def measured(self, arm: Any) -> Mapping[str, float]:
        """Return what the model registry lists of an arm that was compared: bits per byte."""
        return arm.bits_per_byte

    def parameters(self, state: S) -> int:
        """Return the number of the result's parameters: as many as the given model has."""
        return state.started.model.parameters

    # ---- results -----------------------------------------------------------------------------

    def roles(self, config: Any) -> Sequence[str]:
        """Return the role of the result."""
        return (MODEL,)

    def result_id(self, state: S) -> str | None:
        """Return the recipe id of the result once it is known."""
        if state.started is None:
            return None
        found = self.named(state).get(MODEL)
        return found.id if found else None

    def unchanged(self, state: S) -> str | None:
        """Return the given model's name if the result is that model or its copy in float32."""
        made, given = state.completed.models[MODEL], state.started.model
        same = made.digest == given.digest or made.recipe_id == as_float32(state.started).id
        return given.name if same else None

    def models(self, event: Event, state: S) -> list[dict[str, Any]]:
        """Return the result for the model registry, once it is measured."""
        if not isinstance(event, self.completed):
            return []
        done: Any = event  # every kind has arms and the chosen one, each with its own figures
        folder = state.submitted.output_dir
        return [
            {
                "name": f"{state.run}-{role}",
                "kind": "champion",
                "digest": made.digest,
                "parameters": self.parameters(state),
                "path": f"{folder}/{role}" if folder else None,
                "metrics": self.measured(done.arms[done.chosen]),
                "lineage": [state.started.model.digest],
            }
            for role, made in done.models.items()
        ]

    # ---- names -------------------------------------------------------------------------------

    def find(self, state: S, name: str) -> str:
        """Return the recipe id that a name or the beginning of an id means. Raises NotFoundError."""
        if state.started is None:
            raise NotFoundError(f"run {state.run} has made no models yet.")
        return origins.find(state, self.named(state), name)

    def origin(self, state: S, rows: Sequence[Envelope], name: str) -> Origin:
        """Return the origin of a model; without a name, of the result. Raises NotFoundError."""
        recipe_id = self.find(state, name or MODEL)
        found = origins.origin(state, self.named(state), recipe_id, (MODEL,))
        return replace(found, name=self.result_title) if found.name == MODEL else found

    def ancestry(self, state: S, name: str) -> list[Ancestor]:
        """Return a model (the result without a name), and what it was made from."""
        recipe_id = self.find(state, name or MODEL)
        return origins.ancestry(state, self.named(state), recipe_id)

    def chosen(self, state: S, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the result), a name or an id means."""
        if which == "all":
            ids = dict.fromkeys(one.id for one in self.recipes(state).values())
            return [id_ for id_ in ids if id_ in state.made]
        return [self.find(state, MODEL if which == "champion" else which)]
