"""Views of a run at a place of its history, and two runs side by side.

Pure.
"""

from __future__ import annotations

from agent_forge.events.envelope import Plain
from agent_forge.evomerge.reports import candidate_rows
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views.candidates import describe
from agent_forge.runs.kinds.decide import pending
from agent_forge.runs.kinds.view import changed


def view(state: RunState) -> Plain:
    """Return a dict for JSON: a run's population, champion, diversity and pending tasks."""
    assert state.submitted
    newest = max(state.diversities, default=None)
    measured = None if newest is None else state.diversities[newest]
    return {
        "run": state.run,
        "place": state.place,
        "status": state.status,
        "forked_from": state.forked.parent if state.forked else None,
        "generation": state.generation if not state.converged else state.generation - 1,
        "population": candidate_rows.newest(state),
        "champion": champion(state),
        "diversity": None if measured is None else measured.diversity,
        "level": None if measured is None else measured.level,
        "pending": pending(state),
        "failures": {task: f.attempt for task, f in sorted(state.failures.items())},
        "deaths": {task: d.attempt for task, d in sorted(state.deaths.items())},
        "quarantined": sorted(state.quarantined),
    }


def champion(state: RunState) -> Plain | None:
    """Return {recipe_id, score, since, what} of the champion; None if there is none yet."""
    if not state.champions:
        return None
    last = state.champions[-1]
    recipe = state.recipes[last.recipe_id]
    return {
        "recipe_id": last.recipe_id,
        "score": last.score,
        "since": last.generation,
        "what": describe(state, last.recipe_id, recipe),
    }


def difference(a: RunState, b: RunState) -> dict[str, object]:
    """Return a dict for JSON on how run B differs from run A: settings, models, evaluations …"""
    assert a.submitted
    assert b.submitted
    first_settings = a.submitted.config.flat()
    second_settings = b.submitted.config.flat()
    return {
        "a": _side(a),
        "b": _side(b),
        "settings": changed(first_settings, second_settings),
        "sources": _other_sources(a, b),
        "champion": [champion(a), champion(b)],
        "candidates": {
            "only_a": [id_ for id_ in a.built if id_ not in b.built],
            "only_b": [id_ for id_ in b.built if id_ not in a.built],
            "both": sum(id_ in b.built for id_ in a.built),
        },
        "weights": [id_ for id_ in a.built if id_ in b.built and a.built[id_] != b.built[id_]],
        "evaluations": {
            "only_a": sum(key not in b.evaluations for key in a.evaluations),
            "only_b": sum(key not in a.evaluations for key in b.evaluations),
            "different": [
                f"{key[0][:12]} {key[1]}"
                for key, event in a.evaluations.items()
                if key in b.evaluations and event.outcomes != b.evaluations[key].outcomes
            ],
        },
        "same_lineage": a.lineage_digest() == b.lineage_digest(),
    }


def _side(state: RunState) -> dict[str, object]:
    """Return {run, place, status, generation}, the last being the last complete one."""
    done = max(state.generations, default=None)
    return {"run": state.run, "place": state.place, "status": state.status, "generation": done}


def _other_sources(a: RunState, b: RunState) -> list[list[str]]:
    names = []
    for state in (a, b):
        records = (state.started.base, *state.started.sources) if state.started else ()
        names.append([f"{r.name} {r.digest[:12]}" for r in records])
    return [] if names[0] == names[1] else names
