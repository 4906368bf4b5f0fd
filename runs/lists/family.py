"""Family of a model: its recipe's ancestors through all the runs of a log that it went through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runs import kinds
from runs.errors import AmbiguousError, NotFoundError
from runs.history.repository import full_name, load, stream_of
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


def of_registered(store: EventStore, model: str) -> list[Generation]:
    """Return the family of a registered model, by its id or name; empty if no run of the log made it.

    Raises NotFoundError.
    """
    row = model_registry.find(store, model)
    if row["run"] is None:
        return []
    state: Any = load(store, row["run"], showing=True)
    made = kinds.of(state.kind).made(state, row["digest"])
    return [] if made is None else family(store, row["run"], made)


def named(store: EventStore, text: str) -> list[Generation]:
    """Return the family of what RUN (its result), RUN:MODEL, or a registered model's id or name means.

    Raises NotFoundError.
    """
    run, colon, model = text.partition(":")
    if not colon and stream_of(store, text) is None:
        try:
            return of_registered(store, text)
        except AmbiguousError:
            raise
        except NotFoundError:
            pass  # the beginning of a run's name, or nothing
    return family(store, full_name(store, run), model)


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
