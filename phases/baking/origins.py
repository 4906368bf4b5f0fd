"""Models of a baking run by name: its result, iterations, and the beginnings of recipe ids. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaluation.given_model_runs import origins
from evaluation.given_model_runs.events import MODEL
from events import Envelope
from phases.baking import findings
from phases.baking.events import BakingState
from runs.errors import NotFoundError
from runs.kinds.origin import Ancestor, Origin

ROLES = (MODEL,)


def find(state: BakingState, name: str) -> str:
    """Return the recipe id that a role, an iteration's name or the beginning of an id means.

    Raises NotFoundError.
    """
    if state.started is None:
        raise NotFoundError(f"run {state.run} has made no models yet.")
    return origins.find(state, findings.named(state), name)


def origin(state: BakingState, rows: Sequence[Envelope], name: str) -> Origin:
    """Return the origin of a model; without a name, of the result. Raises NotFoundError."""
    recipe_id = find(state, name or MODEL)
    found = origins.origin(state, findings.named(state), recipe_id, ROLES)
    return replace(found, name="baked") if found.name == MODEL else found


def ancestry(state: BakingState, name: str) -> list[Ancestor]:
    """Return a model's recipe and those it was made from, back to the model that was given."""
    return origins.ancestry(state, findings.named(state), find(state, name))
