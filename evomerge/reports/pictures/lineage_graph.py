"""The lineage of a candidate as nodes and edges. Pure."""

from __future__ import annotations

from typing import Any

from evomerge.recipes.recipe import closure, label, parents
from evomerge.run.state import RunState
from evomerge.run.views.candidates import describe


def lineage(state: RunState, recipe_id: str) -> dict[str, Any]:
    """Return what the candidate was made from and, as siblings, what else was made from the same.

    `ancestor` says whether a node is on the way from the sources to the candidate.
    """
    ancestors = closure(recipe_id, state.recipes)
    shown = dict.fromkeys(ancestors)
    for id_, recipe in state.recipes.items():
        if id_ not in shown and set(parents(recipe)) and set(parents(recipe)) <= set(ancestors):
            shown[id_] = None
    places = _places(state)
    nodes = [_node(state, id_, id_ in ancestors, places) for id_ in shown]
    edges = [
        {"from": parent, "to": id_}
        for id_ in shown
        for parent in dict.fromkeys(parents(state.recipes[id_]))
        if parent in shown
    ]
    return {"candidate": recipe_id, "nodes": nodes, "edges": edges}


def _places(state: RunState) -> dict[str, tuple[int, int]]:
    places: dict[str, tuple[int, int]] = {}
    for place, candidate in sorted(state.candidates.items()):
        places.setdefault(candidate.recipe_id, place)
    return places


def _node(
    state: RunState, id_: str, ancestor: bool, places: dict[str, tuple[int, int]]
) -> dict[str, Any]:
    assert state.started
    recipe = state.recipes[id_]
    generation, slot = places.get(id_, (None, None))
    fitness = state.fitness((id_, "selection", None))
    if fitness is None and generation is not None:
        fitness = state.fitness((id_, "search", generation))
    names = {s.recipe_id: s.name for s in (state.started.base, *state.started.sources)}
    baseline = next(
        (name for name, baseline_id in state.baselines.items() if baseline_id == id_), None
    )
    kind = "source" if id_ in names else "baseline" if baseline else None
    if id_ == state.started.base.recipe_id and not state.is_source(id_):
        kind = "base"
    candidate = (
        state.candidates[generation, slot] if generation is not None and slot is not None else None
    )
    return {
        "id": id_,
        "kind": kind or (candidate.type if candidate else recipe.kind),
        "name": names.get(id_) or baseline or label(recipe, state.recipes),
        "what": describe(state, id_, recipe),
        "generation": generation,
        "slot": slot,
        "score": fitness.scalar if fitness else None,
        "parents": list(dict.fromkeys(parents(recipe))),
        "ancestor": ancestor,
        "champion": id_ == state.champion,
    }
