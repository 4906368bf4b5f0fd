"""Merging runs in lists: what an event changes in the run's row, and the models that it brings."""

from __future__ import annotations

import json
from typing import Any

from events import Event
from evomerge.reports.headline import fitness
from evomerge.run import events
from evomerge.run.state import RunState
from evomerge.run.views import wording
from runs.event_types import ModelReference, SourceRecord
from runs.panels.head import listed
from runs.record.user_events import Exported


def note(entry: dict[str, Any], event: Event) -> None:
    """Note an event in the run's row of the run list, in place."""
    match event:
        case events.GenerationCompleted():
            entry["done"] = event.generation
            best = max((s for s in event.scores if s is not None), default=None)
            entry["curve"] = json.dumps([*json.loads(entry["curve"]), best])
        case events.Submitted() | events.Forked():
            entry |= listed(fitness(event.config), entry["value"], "selection slice")
        case events.ChampionChanged():
            entry |= {"result": event.recipe_id, "value": event.score}
        case events.Completed():
            entry |= {"value": event.test.scalar, "measured_on": "test slice"}


def models(event: Event, state: RunState) -> list[dict[str, Any]]:
    """Return the models that an event brings into the model registry.

    These are base and sources at `started`, the champion at `completed`, and at an export of another
    candidate that one. Raises ValueError if the run was submitted with another number of sources than
    it started with.
    """
    match event:
        case events.Started():
            return _given(event, state.submitted)
        case events.Completed():
            assert state.submitted
            metrics = {"test": event.test.scalar, "quality": event.test.quality}
            folder = state.submitted.output_dir
            return [_merge(state, "champion", event.digest, folder, metrics)]
        case Exported():
            assert state.started
            if any(event.digest == model.digest for model in state.started.sources):
                return []
            name = wording.names(state).get(event.recipe_id, event.recipe_id[:12])
            return [_merge(state, "merge", event.digest, event.folder, {}, name)]
    return []


def _merge(
    state: RunState,
    kind: str,
    digest: str,
    folder: str | None,
    metrics: dict[str, float],
    name: str = "champion",
) -> dict[str, Any]:
    """Return the registry's entry of a merge of the run."""
    assert state.started
    return {
        "name": f"{name} of {state.run}",
        "kind": kind,
        "digest": digest,
        "parameters": state.started.base.parameters,
        "path": folder,
        "metrics": metrics,
        "lineage": [source.digest for source in state.started.sources],
    }


def _given(event: events.Started, submitted: events.Submitted | None) -> list[dict[str, Any]]:
    references: list[ModelReference | None] = [None] * (1 + len(event.sources))
    if submitted is not None and len(submitted.sources) != len(event.sources):
        raise ValueError("its run was submitted with another number of sources")
    if submitted is not None:
        references = [submitted.base or submitted.sources[0], *submitted.sources]
    records: list[tuple[SourceRecord, str]] = [(s, "source") for s in event.sources]
    pairs = list(zip(records, references[1:], strict=True))
    if submitted is not None and submitted.base is not None:
        pairs.insert(0, ((event.base, "base"), references[0]))
    return [
        {
            "name": record.name,
            "kind": kind,
            "digest": record.digest,
            "parameters": record.parameters,
            "path": None if reference is None else reference.hub_id or reference.path,
            "metrics": {},
            "lineage": [],
        }
        for (record, kind), reference in pairs
    ]
