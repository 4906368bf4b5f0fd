"""The origin of a model that the log knows: the run that made it, or the registry's entry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent_forge.runs.event_types import ModelReference


@dataclass(frozen=True)
class Origin:
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
class Ancestor:
    """A recipe that a model is made from, or the model's own."""

    recipe_id: str
    #: Its place in the run, and what it is, in words.
    place: str
    words: str
    recipe: Mapping[str, Any]
    #: Of a model that was given to the run: BLAKE3 of its weights, by which another run is found.
    given: str | None = None
