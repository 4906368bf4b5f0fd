"""Models of a cognate run by name: roles, and the beginnings of recipe ids. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from events import Envelope
from phases.cognate import plan
from phases.cognate.events import CognateState
from runs.errors import NotFoundError
from runs.kinds.origin import Ancestor, Origin


def find(state: CognateState, name: str) -> str:
    """Return the recipe id that a role or the beginning of an id means. Raises NotFoundError."""
    if state.started is None:
        raise NotFoundError(f"run {state.run} has made no models yet.")
    models = plan.models(state)
    ids = [recipe.id for role, recipe in models.items() if role == name]
    ids = ids or [recipe.id for recipe in models.values() if name and recipe.id.startswith(name)]
    if len(ids) != 1 or ids[0] not in state.made:
        raise NotFoundError(
            f"run {state.run} has no model {name!r}. It has {_roles(state) or 'none yet'}."
        )
    return ids[0]


def _roles(state: CognateState) -> str:
    return ", ".join(r for r, recipe in plan.models(state).items() if recipe.id in state.made)


def origin(state: CognateState, rows: Sequence[Envelope], name: str) -> Origin:
    """Return the origin of the model with a role. Raises NotFoundError, also without a role."""
    if not name:
        raise NotFoundError(
            f"run {state.run} gives several models: say which, as {state.run}:ROLE. It has "
            f"{_roles(state) if state.started else 'none yet'}."
        )
    recipe_id = find(state, name)
    role = next(r for r, recipe in plan.models(state).items() if recipe.id == recipe_id)
    return Origin(
        name=f"{state.run}-{role}",
        what=f"the {role} model of run {state.run}",
        digest=state.made[recipe_id].digest,
        folders=_folders(state, rows, role),
        run=state.run,
        recipe_id=recipe_id,
    )


def _folders(state: CognateState, rows: Sequence[Envelope], role: str) -> tuple[str, ...]:
    """Return the folders where the model was written."""
    return ()


def ancestry(state: CognateState, name: str) -> list[Ancestor]:
    """Return a model's recipe and those it was trained from, back to the first weights."""
    recipe_id = find(state, name)
    initial = plan.initial(state.submitted.config)
    known = {recipe.id: (role, recipe) for role, recipe in plan.models(state).items()}
    found = []
    while recipe_id in known:
        role, recipe = known[recipe_id]
        shares = ", ".join(f"{domain} {share:.0%}" for domain, share in recipe.data.items())
        words = f"{recipe.upto:,} steps of {recipe.objective} on {shares}, from {recipe.start[:12]}"
        found.append(Ancestor(recipe.id, role, words, recipe.model_dump(mode="json")))
        recipe_id = recipe.start
    if recipe_id == initial.id:
        words = f"{initial.operation}, seed {initial.seed}"
        found.append(Ancestor(initial.id, "untrained", words, initial.model_dump(mode="json")))
    return found
