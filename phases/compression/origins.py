"""Models of a compression by name: points, and the beginnings of recipe ids. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from events import Envelope
from phases.compression import findings, plan
from phases.compression.events import CompressionState, Packed
from runs.errors import NotFoundError
from runs.kinds.origin import Ancestor, Origin
from weights.recipes import Source

#: What the chosen model is called.
CHOSEN = "model"


def find(state: CompressionState, name: str) -> str:
    """Return the recipe id of a point by its name or the beginning of its id; "" is the chosen one.

    Raises NotFoundError.
    """
    if name in ("", CHOSEN):
        if not state.completed:
            raise NotFoundError(f"run {state.run} has chosen no model yet.")
        return state.completed.chosen.recipe_id
    found = findings.points(state) if state.started else []
    ids = [p.recipe.id for p in found if p.name == name]
    ids = ids or [p.recipe.id for p in found if p.recipe.id.startswith(name)]
    if len(set(ids)) != 1:
        known = ", ".join(p.name for p in found) or "none yet"
        raise NotFoundError(f"run {state.run} has no model {name!r}. It has {known}.")
    return ids[0]


def name_of(state: CompressionState, recipe_id: str) -> str:
    """Return the name of a point by its recipe's id."""
    return next(p.name for p in findings.points(state) if p.recipe.id == recipe_id)


def origin(state: CompressionState, rows: Sequence[Envelope], name: str) -> Origin:
    """Return the origin of a point's model; without a name, of the chosen one."""
    recipe_id = find(state, name)
    point = name_of(state, recipe_id).replace(":", "-")
    return Origin(
        name=f"{state.started.source.name}-{point}",
        what=f"model {point} of run {state.run}",
        digest=state.made[recipe_id].digest,
        run=state.run,
        recipe_id=recipe_id,
    )


def ancestry(state: CompressionState, name: str) -> list[Ancestor]:
    """Return a point's recipe, those of its matrices, and the model that it is of."""
    recipe_id = find(state, name)
    packed = state.made[recipe_id]
    assert isinstance(packed, Packed)
    recipe, known = packed.recipe, plan.known(state)
    point = name_of(state, recipe_id)
    found = [Ancestor(recipe_id, point, f"decoded, {point}", recipe.model_dump(mode="json"))]
    for id_ in recipe.inputs_used():
        if id_ in known:
            params = known[id_].params
            words = f"{params['tensor']} by {params['codec']}"
            found.append(Ancestor(id_, "encoded", words, known[id_].model_dump(mode="json")))
    own = (one.source for one in plan.subjects(state.started))
    given = next(one for one in own if one.recipe_id == recipe.inputs["model"])
    source = Source(digest=given.digest)
    words = f"the model {given.name}, {given.digest[:12]}"
    found.append(Ancestor(source.id, "given", words, source.model_dump(mode="json"), given.digest))
    return found
