"""Page of a merging run as plain data, in the shapes of docs/api.md; its parts by name. Pure.

A run is also shown at a place of its history, and beside another run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_forge.events.envelope import Plain
from agent_forge.evomerge.recipes.recipe import label, parents
from agent_forge.evomerge.reports import (
    candidate_rows,
    generation_rows,
    report,
    search_statistics,
    skills,
)
from agent_forge.evomerge.reports import rows as scores
from agent_forge.evomerge.reports.pictures import family_svg
from agent_forge.evomerge.reports.report import places, recipe_document
from agent_forge.evomerge.run.state import SECONDS, RunState
from agent_forge.evomerge.run.views import candidates, wording
from agent_forge.evomerge.run.views.candidates import describe
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.kinds.decide import pending
from agent_forge.runs.kinds.view import changed

#: Instead of a run's ending, before there is one.
UNENDED = {"test": None, "rivals": [], "verdict": None, "lineage_digest": None}


def run(state: RunState) -> Plain:
    """Return {field: value} that the API has for a merging run beside the fields of every run."""
    submitted, started = state.submitted, state.started
    assert submitted
    shown = view(state)
    return {
        "search_ended": wording.ENDINGS[state.converged.reason] if state.converged else None,
        "strategy": state.version_of(max(0, state.generation - 1)) if state.strategies else None,
        "sources": _sources(state),
        "base": _base(state),
        "parameters": started.base.parameters if started else None,
        "blocks": started.blocks if started else None,
        **_search(state, shown),
        **(report.ending(state) if state.completed else UNENDED),
    }


def _search(state: RunState, view: dict[str, object]) -> Plain:
    """Return {field: value} of the page: the progress of the search, and what it has found."""
    submitted, started = state.submitted, state.started
    assert submitted
    return {
        "generation": view["generation"],
        "generations_wanted": submitted.config.generations_wanted,
        "champion": _champion(state),
        "headline": scores.headline(state),
        "items": scores.items(state),
        "skills": skills.data(state),
        "diversity": view["diversity"],
        "level": view["level"],
        "thresholds": {
            "low": submitted.config.min_diversity,
            "reseed": submitted.config.reseed_diversity,
        },
        "generations": generation_rows.rows(state, generation_rows.PAGE),
        "techniques": search_statistics.techniques(state) if started else [],
        "genes": search_statistics.genes(state) if started else [],
        "front": search_statistics.front(state) if started else None,
        "stages": report.bit_effects(state) if started else {},
        "cost": report.cost(state) if started else None,
        "spent": report.spending(state),
    }


def _sources(state: RunState) -> list[dict[str, object]]:
    assert state.submitted
    records = state.started.sources if state.started else [None] * len(state.submitted.sources)
    return [
        {
            "name": model.name,
            "path": model.hub_id or model.path,
            "recipe_id": record.recipe_id if record else None,
            "digest": record.digest if record else None,
        }
        for model, record in zip(state.submitted.sources, records, strict=True)
    ]


def _base(state: RunState) -> Plain | None:
    assert state.submitted
    model, record = state.submitted.base, state.started.base if state.started else None
    if model is None:
        return None
    return {
        "name": model.name,
        "path": model.hub_id or model.path,
        "recipe_id": record.recipe_id if record else None,
        "digest": record.digest if record else None,
    }


def _champion(state: RunState) -> dict[str, object] | None:
    best = champion(state)
    if best is None:
        return None
    id_ = best["recipe_id"]
    fitness = state.fitness((id_, "selection", None))
    return {
        **best,
        "name": label(state.recipes[id_], state.recipes),
        "digest": state.built[id_][0],
        "components": dict(fitness.normalised) if fitness else {},
    }


def population(state: RunState, generation: int | None, everything: bool) -> dict[str, object]:
    """Return {generation, generations, rows}: candidates of one (None: the newest), or `everything`."""
    numbers = candidate_rows.generations(state)
    if generation is None:
        generation = numbers[-1] if numbers else None
    by_part = search_statistics.parts(state)
    shown_generation = None if everything else generation
    rows = [
        {**candidate_rows.row(model, candidate_rows.FULL), "parts": by_part.get(model.recipe_id)}
        for model in candidate_rows.slots(state, shown_generation)
        if everything or generation is not None
    ]
    return {"generation": generation, "generations": numbers, "rows": rows}


def candidate(state: RunState, recipe_id: str) -> dict[str, object]:
    """Return a dict for JSON of one candidate: its recipe, all its scores, its relatives."""
    recipe = state.recipes[recipe_id]
    scores = []
    for (id_, slice_, generation), event in state.evaluations.items():
        if id_ != recipe_id:
            continue
        fitness = state.fitness((id_, slice_, generation))
        scores.append(
            {
                "slice": slice_,
                "generation": generation,
                "fitness": fitness.scalar if fitness else None,
                "quality": fitness.quality if fitness else None,
                "components": event.components.model_dump(mode="json") if event.components else None,
                "stopped": event.stopped,
            }
        )
    return {
        "recipe_id": recipe_id,
        "kind": recipe.kind,
        "name": label(recipe, state.recipes),
        "what": candidates.describe(state, recipe_id, recipe),
        "where": candidates.place(state, recipe_id),
        "digest": state.built[recipe_id][0] if recipe_id in state.built else None,
        "recipe": recipe.model_dump(mode="json"),
        "genes": candidate_rows.genes(recipe, state),
        "parents": list(dict.fromkeys(parents(recipe))),
        "children": [id_ for id_, other in state.recipes.items() if recipe_id in parents(other)],
        "evaluations": scores,
    }


def progress(state: RunState, generation: int | None = None) -> dict[str, object]:
    """Return the source documents' progress message (dict) at the end of a generation.

    The newest generation is usual. `percent` goes by generations, or by the budget's hours if
    nothing else ends the search. In both cases it follows from the log alone.
    """
    rows = generation_rows.rows(state)
    rows = rows if generation is None else rows[: generation + 1]
    last = rows[-1] if rows else None
    assert state.submitted
    goal, share = state.submitted.config.generations_wanted, 0.0
    if state.completed and generation is None:
        share = 1.0
    elif last:
        share = _share(state, last["generation"])
    return {
        "type": "progress",
        "run": state.run,
        "task_id": state.run,
        "phase": "evomerge",
        "status": state.status,
        "generation": last["generation"] if last else None,
        "generations": goal,
        "total_generations": goal,
        "progress": min(1.0, share),
        "percent": 100 * min(1.0, share),
        "best_fitness": last["champion"] if last else None,
        "avg_fitness": last["mean"] if last else None,
        "diversity": last["diversity"] if last else None,
    }


def _share(state: RunState, generation: int) -> float:
    """Return the share of a run that had passed when a generation was closed, by what ends it."""
    assert state.submitted
    config = state.submitted.config
    if config.budget_hours is not None and config.generations_wanted is None:
        return state.closed[generation].wall / (SECONDS * config.budget_hours)
    return generation / config.generations if config.generations else 0.0


def part(state: RunState, name: str, query: Mapping[str, Any]) -> dict[str, object]:
    """Return a dict, the "population", a "candidate" or a "lineage" by name. Raises NotFoundError."""
    match name:
        case "population":
            return population(state, query["generation"], query["everything"])
        case "candidate":
            return _candidate(state, candidates.find(state, query["candidate"]))
        case "lineage":
            return family_svg.lineage(state, candidates.find(state, query["candidate"]))
    raise NotFoundError(f"a merging run has no {name}.")


def _candidate(state: RunState, recipe_id: str) -> dict[str, object]:
    """Return a candidate (dict), with its config for `forge merge` if a config can express it."""
    body = candidate(state, recipe_id)
    started = state.started
    if started is None or recipe_id not in state.built:
        return body
    if recipe_id in {s.recipe_id for s in (started.base, *started.sources)}:
        return body
    from agent_forge.evomerge.mergekit.export_config import as_config

    model_places, dtype = places(state), started.profile.dtype
    return {
        **body,
        "yaml": as_config(recipe_id, state.recipes, model_places, dtype),
        "document": recipe_document(state, recipe_id, state.head),
    }


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
