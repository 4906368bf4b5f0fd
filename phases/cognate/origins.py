"""Models of a cognate run by name: roles, and the beginnings of recipe ids. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from events import Envelope
from phases.cognate import plan
from phases.cognate.events import CognateState
from runs.errors import NotFoundError
from runs.kinds.origin import Ancestor, Origin
from studies.origins import objective
from weights.recipes import Source, Train, Transform


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
        name=role,
        what=f"{role} model of run {state.run}",
        digest=state.made[recipe_id].digest,
        folders=(f"{out}/{role}",) if (out := state.submitted.output_dir) else (),
        run=state.run,
        recipe_id=recipe_id,
    )


def ancestry(state: CognateState, name: str) -> list[Ancestor]:
    """Return a model's recipe and those it was trained from, back to the first weights."""
    known, next_id = plan.recipes(state), find(state, name)
    names = {recipe.id: role for role, recipe in known.values()}
    found: list[Ancestor] = []
    while next_id in known:
        role, recipe = known[next_id]
        found.append(Ancestor(next_id, role, _words(recipe, names), recipe.model_dump(mode="json")))
        next_id = recipe.start if isinstance(recipe, Train) else _made_of(recipe)
    if (given := state.started.base) is not None:
        source = Source(digest=given.digest)
        words = f"the model {given.name}, {given.digest[:12]}"
        found.append(
            Ancestor(source.id, "given", words, source.model_dump(mode="json"), given.digest)
        )
    return found


def _made_of(recipe: Transform) -> str:
    """Return the id of what a model was made of; of an average, its last snapshot. "": of nothing."""
    return recipe.inputs[max(recipe.inputs)] if recipe.inputs else ""


def _words(recipe: Train | Transform, names: Mapping[str, str]) -> str:
    """Return a recipe in words; `names`: recipe id → role."""
    if isinstance(recipe, Train):
        shares = ", ".join(f"{domain} {share:.0%}" for domain, share in recipe.data.items())
        start = names.get(recipe.start) or recipe.start[:12]
        return f"{recipe.upto:,} steps of {objective(recipe)} on {shares}, from {start}"
    if recipe.operation == "average@1":
        last = names.get(_made_of(recipe), "")
        return f"average of {len(recipe.inputs)} snapshots, the last {last}"
    given = recipe.inputs.get("of")
    return (
        f"{recipe.operation} of {names.get(given) or given[:12]}"
        if given
        else f"{recipe.operation}, seed {recipe.seed}"
    )
