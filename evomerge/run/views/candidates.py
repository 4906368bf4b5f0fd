"""Candidates of a merging run: finding them by name, and describing them. No torch."""

from __future__ import annotations

from agent_forge.evomerge.recipes.recipe import Merge, Mutate, Recipe, Source, closure, label
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import wording
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.kinds.origin import Ancestor


def find(state: RunState, candidate: str) -> str:
    """Return the recipe id that is meant by "champion", a fixed merge's name, an id or its beginning.

    Raises NotFoundError.
    """
    if candidate == "champion":
        if state.champion is None:
            raise NotFoundError(f"run {state.run} has no champion yet.")
        return state.champion
    if candidate in state.baselines:
        return state.baselines[candidate]
    alike = [id_ for id_ in state.recipes if candidate and id_.startswith(candidate)]
    if len(alike) != 1:
        what = "is not known" if not alike else "is the beginning of several"
        raise NotFoundError(
            f"candidate {candidate!r} {what} in run {state.run}. It has "
            f"{', '.join(['champion', *state.baselines])}, and candidates by their ids: "
            f"`forge events {state.run}` lists them."
        )
    return alike[0]


def place(state: RunState, recipe_id: str) -> str:
    """Return a recipe's place: "candidate 3/5", "baseline mean", "given" (a source)."""
    for (generation, slot), candidate in state.candidates.items():
        if candidate.recipe_id == recipe_id:
            return f"candidate {generation}/{slot}"
    for name, id_ in state.baselines.items():
        if id_ == recipe_id:
            return f"baseline {name}"
    return "given"


def describe(state: RunState, recipe_id: str, recipe: Recipe) -> str:
    """Return a description of a recipe in a few words, with names of what it is made from."""
    assert state.started
    names = wording.names(state)
    if isinstance(recipe, Source):
        return f"source {names.get(recipe_id, state.started.base.name)}"
    if isinstance(recipe, Mutate):
        parts = (("genes", recipe.pipeline), ("noise", recipe.noise))
        changed = " and ".join(what for what, present in parts if present)
        return f"mutant of {wording.named(recipe.parent, names)} ({changed})"
    inputs = ", ".join(wording.named(id_, names) for id_ in recipe.inputs)
    known_as = recipe.method if isinstance(recipe, Merge) else label(recipe, state.recipes)
    return f"{known_as} of {inputs}"


def ancestry(state: RunState, name: str) -> list[Ancestor]:
    """Return an `Ancestor` for a candidate's recipe and each that it is made from, to the sources."""
    family = closure(find(state, name or "champion"), state.recipes)
    return [
        Ancestor(
            id_,
            place(state, id_),
            describe(state, id_, recipe),
            recipe.model_dump(mode="json"),
            recipe.digest if isinstance(recipe, Source) else None,
        )
        for id_, recipe in reversed(family.items())
    ]
