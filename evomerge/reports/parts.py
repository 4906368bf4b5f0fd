"""Parts of a merging run's page, by name, as the API's routes say them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evomerge.reports import page
from evomerge.reports.outputs.recipe_file import places, recipe_document
from evomerge.reports.pictures import lineage_graph
from evomerge.run.state import RunState
from evomerge.run.views import candidates
from runs.errors import NotFoundError


def part(state: RunState, name: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of the page. Raises NotFoundError for an unknown part or candidate."""
    match name:
        case "population":
            return page.population(state, query["generation"], query["everything"])
        case "candidate":
            return _candidate(state, candidates.find(state, query["candidate"]))
        case "lineage":
            return lineage_graph.lineage(state, candidates.find(state, query["candidate"]))
    raise NotFoundError(f"a merging run has no {name}.")


def _candidate(state: RunState, recipe_id: str) -> dict[str, Any]:
    """Return a candidate, with its recipe as a config for `forge merge` where a config can say it."""
    body = page.candidate(state, recipe_id)
    started = state.started
    if started is None or recipe_id not in state.built:
        return body
    if recipe_id in {s.recipe_id for s in (started.base, *started.sources)}:
        return body
    from evomerge.mergekit.export_config import as_config

    model_places, dtype = places(state), started.profile.dtype
    return {
        **body,
        "yaml": as_config(recipe_id, state.recipes, model_places, dtype),
        "document": recipe_document(state, recipe_id, state.head),
    }
