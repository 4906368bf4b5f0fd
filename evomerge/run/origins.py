"""Origins of a merging run's models: what they are, and the folders they were written to. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent_forge.events import Envelope
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import candidates
from agent_forge.runs.event_types import ModelReference, SourceRecord
from agent_forge.runs.kinds.origin import Origin
from agent_forge.runs.record.events import Exported


def origin(state: RunState, rows: Sequence[Envelope], name: str) -> Origin:
    """Return a candidate's origin; without a name, the champion's. Raise NotFoundError."""
    recipe_id = candidates.find(state, name or "champion")
    kind = "champion" if recipe_id == state.champion else "candidate"
    so_far = "" if state.completed or kind != "champion" else ", which has not ended"
    return Origin(
        name=f"{state.run}-{recipe_id[:8]}",
        what=f"{kind} {recipe_id[:12]} of run {state.run}{so_far}",
        digest=state.built[recipe_id][0],
        folders=tuple(dict.fromkeys(_places(state, rows, recipe_id))),
        run=state.run,
        recipe_id=recipe_id,
    )


def _places(state: RunState, rows: Sequence[Envelope], recipe_id: str) -> list[str]:
    """Return the folders to which a recipe's weights were written, the newest first.

    Two recipes may give the same weights, such as a champion that is a fixed merge. For a source, its
    given folders follow.
    """
    folders: list[str] = []
    digest = state.built[recipe_id][0]
    for row in reversed(rows):
        if row.type == Exported.type:
            event = events.REGISTRY.load(row)
            if isinstance(event, Exported) and event.digest == digest:
                folders.append(event.folder)
    champion = state.built[state.champion][0] if state.champion else None
    if state.submitted and state.submitted.output_dir and digest == champion:
        folders.append(state.submitted.output_dir)
    if state.submitted and state.started:
        folders += [model.path for model, _ in given_sources(state, recipe_id)]
    return folders


def given_sources(state: RunState, recipe_id: str) -> list[tuple[ModelReference, SourceRecord]]:
    """Return (as given, as pinned) of the base and sources with a recipe's id; [] for a merge."""
    assert state.submitted
    assert state.started
    models = (state.submitted.base or state.submitted.sources[0], *state.submitted.sources)
    pairs = zip(models, (state.started.base, *state.started.sources), strict=True)
    return [(model, record) for model, record in pairs if record.recipe_id == recipe_id]
