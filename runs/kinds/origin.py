"""Models of runs: their names, measurements and ancestors, and where the log has a model from. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent_forge.events import Envelope, Event
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.event_types import MadeModel, Measurement, ModelReference
from agent_forge.runs.kinds.capability import Capability, S
from agent_forge.runs.panels.head import Entry


@dataclass(frozen=True)
class LogModel:
    """A model that the log knows, and the folders that may have its weights."""

    name: str
    #: A description for people.
    what: str
    #: BLAKE3 of its weights.
    digest: str
    #: Folders that had these weights, the best first.
    folders: tuple[str, ...] = ()
    #: The Hub id that the model was fetched by.
    hub: str | None = None
    #: The run and the recipe from which the model can be rebuilt.
    run: str | None = None
    recipe_id: str | None = None

    def request(self, folders: Sequence[str]) -> str:
        """Return the request, as JSON, that `main` reads; it may look in these folders."""
        return json.dumps({**asdict(self), "folders": list(folders)})

    def reference(self, folder: str) -> ModelReference:
        """Return the reference by which a run records the model, with this folder."""
        return ModelReference(name=self.name, path=folder, digest=self.digest)


@dataclass(frozen=True)
class AncestorRecipe:
    """A recipe that a model is made from, or the model's own."""

    recipe_id: str
    #: Its place in the run, and what it is, in words.
    place: str
    words: str
    recipe: Mapping[str, Any]
    #: Of a model that was given to the run: BLAKE3 of its weights, by which another run is found.
    given: str | None = None


class RunModels(Capability[S]):
    """The models that runs of a kind make and measure; by default none."""

    def result(self, state: S) -> MadeModel | None:
        """Return the run's result, final or so far; None, the default, if there is none."""
        return None

    def find(self, state: S, name: str) -> str:
        """Raise NotFoundError; a kind with models returns the recipe id that a run's `name` means."""
        raise NotFoundError(f"run {state.run} has no model {name!r}: it is {self.kind.title}.")

    def origin(self, state: S, rows: Sequence[Envelope], name: str) -> LogModel:
        """Raise NotFoundError; a kind with models returns a LogModel, for name "" of the result."""
        raise NotFoundError(f"run {state.run} is {self.kind.title}, which makes no models.")

    def ancestry(self, state: S, name: str) -> list[AncestorRecipe]:
        """Raise NotFoundError; a kind with models returns [a model's recipe, those it is made from].

        An empty name means the run's result. Raises NotFoundError.
        """
        raise NotFoundError(f"run {state.run} is {self.kind.title}, which makes no models.")

    def recipe_id(self, state: S, digest: str) -> str | None:
        """Return the recipe id of the model that the run made with these weights; by default None."""
        return None

    def measurements(self, state: S, digest: str) -> Sequence[Measurement]:
        """Return what the run measured of the model with the weights `digest`; by default ()."""
        return ()

    def registered(self, event: Event, state: S) -> list[Entry]:
        """Return dicts of the models that `started` or `completed` registers; by default [].

        Each has `name`, `kind`, `digest`, `parameters`, `path`, `metrics` and `lineage`.
        """
        return []
