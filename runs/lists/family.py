"""Family of a model: its recipe's ancestors through all the runs of a log that it went through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runs import kinds
from runs.errors import NotFoundError
from runs.history.repository import load
from runs.lists import model_registry

if TYPE_CHECKING:
    from events import EventStore
    from runs.kinds.origin import Ancestor

#: (run, ancestors of a model in it, the model first).
Generation = tuple[str, list["Ancestor"]]


def family(store: EventStore, run: str, model: str = "") -> list[Generation]:
    """Return the ancestors of a model run by run: its own run first, then those of what was given.

    Raises NotFoundError.
    """
    return _family(store, run, model, set())


def _family(
    store: EventStore, run: str, model: str, seen: set[tuple[str, str]]
) -> list[Generation]:
    state: Any = load(store, run, showing=True)
    own = kinds.of(state.kind).ancestry(state, model)
    result = [(run, own)]
    for one in own:
        found = maker(store, run, one.given) if one.given else None
        if found is not None and found not in seen:
            seen.add(found)
            result += _family(store, *found, seen)
    return result


def maker(store: EventStore, run: str, digest: str) -> tuple[str, str] | None:
    """Return (run, recipe id) of the other run that made these weights; None if none is known."""
    name = said(store, digest)
    if name in (None, run):
        return None
    state: Any = load(store, name, showing=True)
    recipe_id = kinds.of(state.kind).made(state, digest)
    return None if recipe_id is None else (name, recipe_id)


def said(store: EventStore, digest: str) -> str | None:
    """Return the run that the registry says made these weights; None if it says nothing."""
    try:
        return model_registry.find(store, model_registry.id_of(digest))["run"]
    except NotFoundError:
        return None
