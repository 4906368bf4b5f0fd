"""States of runs as plain data, in the shapes of docs/api.md. Pure.

A kind of run adds its own part (`Kind.view`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from agent_forge.events import Envelope
from agent_forge.runs import kinds
from agent_forge.runs.history.repository import inside
from agent_forge.runs.kinds import wording
from agent_forge.runs.kinds.controls import CONTROLS, refusal
from agent_forge.runs.kinds.decide import pending
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists.model_registry import id_of
from agent_forge.runs.record.events import Described, Exported
from agent_forge.runs.streams import run_of

#: What a user may ask of a run in some states → an event that asks it; its fields do not matter.
ASKED = {
    **{
        word: command.event.model_construct()
        for word, command in CONTROLS.items()
        if command.event not in (None, Described)
    },
    "export": Exported.model_construct(),
}


def run(state: State) -> dict[str, Any]:
    """Return all of a run but what depends on when it is asked for."""
    submitted, started = state.submitted, state.started
    assert submitted
    kind = kinds.of(state.kind)
    waiting = pending(state)
    done, of = kind.progress(state)
    decision = kind.decision(state)
    trouble = {task: failure.attempt for task, failure in sorted(state.failures.items())}
    return {
        "run": state.run,
        "kind": state.kind,
        "status": state.status,
        "reason": _reason(state),
        "decision": asdict(decision) if decision else None,
        "owner": submitted.owner,
        "priority": state.priority,
        "labels": list(submitted.labels),
        "device": state.device,
        "place": state.place,
        "version": state.version,
        "head": state.head,
        "forked_from": _origin(state),
        "allowed": [*_allowed(state, decision is not None), "fork"],
        "config": kind.shown(submitted.config),
        "warnings": list(started.warnings) if started else [],
        "pending": waiting,
        "failures": trouble,
        "quarantined": sorted(state.quarantined),
        "words": _words(state, [*waiting, *trouble, *state.quarantined]),
        "progress": {"done": done, "of": of, "unit": kind.unit},
        "lineage_digest": state.completed.lineage_digest if state.completed else None,
        "results": _results(kind, state),
        **kind.view(state),
    }


def _results(kind: Kind[Any], state: State) -> dict[str, str]:
    """Return role → id in the model registry of what a completed run gives."""
    results = kind.results(state) if state.completed else {}
    return {role: id_of(model.digest) for role, model in results.items()}


def _allowed(state: State, undecided: bool) -> Iterator[str]:
    """Yield what a user may ask of a run; a retry does not help one that waits for a decision."""
    for name, event in ASKED.items():
        if refusal(state, event) is None and not (undecided and name == "retry"):
            yield name


def _origin(state: State) -> dict[str, Any] | None:
    """Return where a fork was branched: the place in its parent, the version of the stream there."""
    fork = state.forked
    place_ = state.place - state.version
    return {"run": fork.parent, "place": place_, "version": fork.version} if fork else None


def _words(state: State, keys: list[str]) -> dict[str, str]:
    """Return what is next, failed or quarantined in words, by its key."""
    names = wording.names(state)
    return {key: wording.next_step(state.kind, key, names) for key in keys}


def _reason(state: State) -> str | None:
    """Return why the run failed or was cancelled; None for a run that did not."""
    if state.failed:
        return state.failed.reason
    return state.cancelled.reason if state.cancelled else None


def event(row: Envelope, place_: int, names: wording.Names | None = None) -> dict[str, Any]:
    """Return one event in full; `names`: names by recipe id, for its one-line summary."""
    data, kind = json.loads(row.data), kinds.kind_of(row.stream)
    return {
        "place": place_,
        "position": row.position,
        "run": run_of(row.stream),
        "version": row.version,
        "type": row.type,
        "inside": inside(row),
        "unit": kind.unit_of(row) if kind else None,
        "schema": row.schema,
        "actor": row.actor,
        "recorded_at": row.recorded_at,
        "gist": wording.gist(row.stream.partition("/")[0], row.type, data, names),
        "data": data,
        "key": row.key,
        "hash": row.hash,
    }
