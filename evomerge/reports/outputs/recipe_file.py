"""A candidate's recipe as a document, enough to rebuild the candidate from the sources.

Pure.
"""

from __future__ import annotations

from agent_forge.evomerge.recipes.recipe import closure
from agent_forge.evomerge.reports import report
from agent_forge.evomerge.run.state import RunState


def recipe_document(state: RunState, recipe_id: str, chain_head: str) -> dict[str, object]:
    """Return a dict for JSON: a candidate's recipe with all ancestors, enough to rebuild it."""
    assert state.started
    needed = closure(recipe_id, state.recipes)
    started = state.started
    sources = {s.recipe_id: s.name for s in (started.base, *started.sources)}
    return {
        "run": state.run,
        "forked_from": report.origin(state),
        "candidate": recipe_id,
        "digest": state.built[recipe_id][0],
        "chain_head": chain_head,
        "sources": sources,
        "places": places(state),
        "recipes": {id_: recipe.model_dump(mode="json") for id_, recipe in needed.items()},
    }


def places(state: RunState) -> dict[str, str]:
    """Return {recipe id: place of base or source at the start}: Hub id@revision, or folder."""
    assert state.started
    assert state.submitted
    models = (state.submitted.base or state.submitted.sources[0], *state.submitted.sources)
    records = (state.started.base, *state.started.sources)
    return {
        record.recipe_id: f"{m.hub_id}@{m.revision}" if m.hub_id else m.path
        for record, m in zip(records, models, strict=True)
    }
