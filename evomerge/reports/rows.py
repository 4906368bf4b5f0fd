"""Merging runs in lists: what an event changes in the run's row, and the models that it brings."""

from __future__ import annotations

import json
from typing import Any

from events import Event
from evomerge.reports.headline import fitness
from evomerge.run import events
from evomerge.run.state import RunState
from runs.event_types import ModelReference, SourceRecord
from runs.panels.head import listed


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

    These are base and sources at `started`, the champion at `completed`. Raises ValueError if the
    run was submitted with another number of sources than it started with.
    """
    match event:
        case events.Started():
            return _given(event, state.submitted)
        case events.Completed():
            assert state.started
            return [
                {
                    "name": f"champion of {state.run}",
                    "kind": "champion",
                    "digest": event.digest,
                    "parameters": state.started.base.parameters,
                    "path": None,
                    "metrics": {"test": event.test.scalar, "quality": event.test.quality},
                    "lineage": [source.digest for source in state.started.sources],
                }
            ]
    return []


def _given(event: events.Started, submitted: events.Submitted | None) -> list[dict[str, Any]]:
    given: list[ModelReference | None] = [None] * (1 + len(event.sources))
    if submitted is not None and len(submitted.sources) != len(event.sources):
        raise ValueError("its run was submitted with another number of sources")
    if submitted is not None:
        given = [submitted.base or submitted.sources[0], *submitted.sources]
    records: list[tuple[SourceRecord, str]] = [(s, "source") for s in event.sources]
    pairs = list(zip(records, given[1:], strict=True))
    if submitted is not None and submitted.base is not None:
        pairs.insert(0, ((event.base, "base"), given[0]))
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
