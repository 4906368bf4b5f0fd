"""Rebuilding of a run's missing inputs that other runs made, by the log.

If the other run's cache is empty, this takes as long as that run's own work.
"""

from __future__ import annotations

import json
import logging
from contextlib import closing
from pathlib import Path

from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.origin import LogModel
from agent_forge.runs.lists import family
from agent_forge.runs.streams import run_of
from agent_forge.weights.storage.model_origin import settle

log = logging.getLogger(__name__)


def model(home: Home, reference: ModelReference) -> Path | None:
    """Return the path of a folder with the model, rebuilt if missing; None if no run made it."""
    origin = _origin(home, reference.digest) if reference.digest else None
    if origin is None:
        return None
    try:
        return Path(settle(home, json.loads(origin.request(origin.folders))))
    except ForgeError as error:
        log.warning("model %s cannot be made again: %s", reference.name, error)
        return None


def _origin(home: Home, digest: str) -> LogModel | None:
    """Return the LogModel of the weights with this digest; None if no run in the log made them."""
    with closing(home.open_store()) as store:
        run = family.said(store, digest)
        if run is None:
            return None
        state, rows = repository.opened(store, run, showing=True)
        kind = kinds.of(state.kind)
        recipe_id = kind.models.recipe_id(state, digest)
        return None if recipe_id is None else kind.models.origin(state, rows, recipe_id)


def items(home: Home, cache: object, address: str) -> Path | None:
    """Return the path of the file of the items with this address; None if no run pinned them."""
    with closing(home.open_store()) as store:
        for name in kinds.table():
            kind = kinds.of(name)
            for first in store.streams(f"{name}/") if kind.gives_items else ():
                state = repository.load(store, run_of(first.stream))
                if state.started is not None and kind.storage.items_address(state) == address:
                    return kind.storage.items_file(state, cache)
    return None
