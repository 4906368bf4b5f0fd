"""Models of a curriculum run by name: its result, arms, segments, beginnings of recipe ids. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaluation.given_model_runs import origins
from evaluation.given_model_runs.events import MODEL
from events import Envelope
from phases.curriculum import findings
from phases.curriculum.events import CurriculumState
from runs.errors import NotFoundError
from runs.kinds.origin import Ancestor, Origin

ROLES = (MODEL,)


def find(state: CurriculumState, name: str) -> str:
    """Return the recipe id that a role, an arm's name or the beginning of an id means.

    Raises NotFoundError.
    """
    if state.started is None:
        raise NotFoundError(f"run {state.run} has made no models yet.")
    return origins.find(state, findings.named(state), name)


def origin(state: CurriculumState, rows: Sequence[Envelope], name: str) -> Origin:
    """Return the origin of a model; without a name, of the result. Raises NotFoundError."""
    recipe_id = find(state, name or MODEL)
    found = origins.origin(state, findings.named(state), recipe_id, ROLES)
    return replace(found, name="curriculum") if found.name == MODEL else found


def ancestry(state: CurriculumState, name: str) -> list[Ancestor]:
    """Return a model's recipe and those it was made from, back to the model that was given."""
    return origins.ancestry(state, findings.named(state), find(state, name))
