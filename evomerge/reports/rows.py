"""Rows and headlines of merging runs in lists, and the models that an event registers. Pure."""

from __future__ import annotations

import json

from agent_forge.evaluation.data.slices import Slice
from agent_forge.events import Event
from agent_forge.events.envelope import Plain
from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.reports import report
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import wording
from agent_forge.runs.event_types import ModelReference, SourceRecord
from agent_forge.runs.panels.head import listed
from agent_forge.runs.panels.shapes import Metric
from agent_forge.runs.record.events import Exported


def note(entry: Plain, event: Event) -> None:
    """Update a run's row of the run list with an event, in place."""
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


def models(event: Event, state: RunState) -> list[Plain]:
    """Return the entries (dicts) of the models that an event brings into the model registry.

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
) -> dict[str, object]:
    """Return the registry's entry (dict) of a merge of the run."""
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


def _given(event: events.Started, submitted: events.Submitted | None) -> list[dict[str, object]]:
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


SLICES: tuple[Slice, ...] = ("search", "selection", "test")


def items(state: RunState) -> dict[str, int] | None:
    """Return {slice: number of items that a model is measured on}; None before the run has started."""
    if state.started is None:
        return None
    draws = {s: state.draws(s, 0 if s == "search" else None) for s in SLICES}
    return {
        s: sum(len(d.windows) + len(d.questions) + len(d.problems) for d in drawn.values())
        for s, drawn in draws.items()
    }


def fitness(config: EvoMergeConfig) -> Metric:
    """Return the `Metric` of a run's scores: relative to the best source, or plain."""
    relative = config.normalise != "none"
    return Metric(name="fitness", unit="1 = the best source" if relative else "", better="up")


def headline(state: RunState) -> Plain | None:
    """Return {score, lead, …} of the champion, on test or else selection; None without one.

    The score on selection flatters: the champion was chosen by it. The one on test comes with the lead
    over the best source (or the base) and its 95 % interval.
    """
    if state.champion is None or state.submitted is None:
        return None
    counts = items(state) or {}
    metric = fitness(state.submitted.config)
    unit = ", ".join(filter(None, (metric.name, metric.unit)))
    if state.completed is None:
        figure = {"slice": "selection", "score": state.champions[-1].score, "over": None}
        return {
            **figure,
            "lead": None,
            "low": None,
            "high": None,
            "unit": unit,
            "items": counts.get("selection"),
        }
    rivals = [r for r in report.rivals(state) if r["kind"] != "baseline" and r["score"] is not None]
    best = max(rivals, key=lambda r: r["score"], default=None)
    lead = {k: best[k] if best else None for k in ("lead", "low", "high")}
    figure = {"slice": "test", "score": state.completed.test.scalar}
    return {
        **figure,
        "over": best["name"] if best else None,
        **lead,
        "unit": unit,
        "items": counts.get("test"),
    }
