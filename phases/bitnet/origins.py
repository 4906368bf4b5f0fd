"""Models of a bitnet run by name: roles, and the beginnings of recipe ids. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from events import Envelope
from phases.bitnet import plan
from phases.bitnet.events import BitnetState
from runs.errors import NotFoundError
from runs.kinds.origin import Ancestor, Origin
from studies import origins
from studies.events import MODEL

ROLES = (MODEL, plan.MASTER)


def find(state: BitnetState, name: str) -> str:
    """Return the recipe id that a role, an arm's name or the beginning of an id means.

    Raises NotFoundError.
    """
    if state.started is None:
        raise NotFoundError(f"run {state.run} has made no models yet.")
    return origins.find(state, plan.recipes(state), name)


def origin(state: BitnetState, rows: Sequence[Envelope], name: str) -> Origin:
    """Return the origin of a model; without a name, of the ternary one. Raises NotFoundError."""
    recipe_id = find(state, name or MODEL)
    return origins.origin(state, plan.recipes(state), recipe_id, ROLES)


def ancestry(state: BitnetState, name: str) -> list[Ancestor]:
    """Return a model's recipe and those it was made from, back to the model that was given."""
    return origins.ancestry(state, plan.recipes(state), find(state, name))
