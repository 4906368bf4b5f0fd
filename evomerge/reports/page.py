"""A merging run as plain data, in the shapes of docs/api.md. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from evomerge.recipes import tensor_groups
from evomerge.recipes.recipe import Flow, Grouped, Merge, Recipe, Source, genome, label, parents
from evomerge.reports import headline as scores
from evomerge.reports import report, search_statistics
from evomerge.reports import snapshot as views
from evomerge.run import candidates, wording
from evomerge.run.state import RunState

#: Instead of a run's ending, before there is one.
UNENDED = {"test": None, "rivals": [], "verdict": None, "lineage_digest": None}


def run(state: RunState) -> dict[str, Any]:
    """Return what the API says of a merging run beside what it says of every run."""
    submitted, started = state.submitted, state.started
    assert submitted
    seen = views.view(state)
    return {
        "search_ended": wording.ENDINGS[state.converged.reason] if state.converged else None,
        "strategy": state.version_of(max(0, state.generation - 1)) if state.strategies else None,
        "sources": _sources(state),
        "base": _base(state),
        "parameters": started.base.parameters if started else None,
        "blocks": started.blocks if started else None,
        **_search(state, seen),
        **(report.ending(state) if state.completed else UNENDED),
    }


def _search(state: RunState, seen: dict[str, Any]) -> dict[str, Any]:
    """Return how far the search is, and what it has found."""
    submitted, started = state.submitted, state.started
    assert submitted
    return {
        "generation": seen["generation"],
        "generations_wanted": submitted.config.generations,
        "champion": _champion(state),
        "headline": scores.headline(state),
        "items": scores.items(state),
        "domains": scores.domains(state) if started else None,
        "diversity": seen["diversity"],
        "level": seen["level"],
        "thresholds": {
            "low": submitted.config.min_diversity,
            "reseed": submitted.config.reseed_diversity,
        },
        "generations": generations(state),
        "techniques": search_statistics.techniques(state) if started else [],
        "genes": search_statistics.genes(state) if started else [],
        "front": search_statistics.front(state) if started else None,
        "stages": report.bit_effects(state) if started else {},
        "cost": report.cost(state) if started else None,
        "spent": report.spending(state),
    }


def _sources(state: RunState) -> list[dict[str, Any]]:
    assert state.submitted
    records = state.started.sources if state.started else [None] * len(state.submitted.sources)
    return [
        {
            "name": given.name,
            "path": given.hub_id or given.path,
            "recipe_id": record.recipe_id if record else None,
            "digest": record.digest if record else None,
        }
        for given, record in zip(state.submitted.sources, records, strict=True)
    ]


def _base(state: RunState) -> dict[str, Any] | None:
    assert state.submitted
    given, record = state.submitted.base, state.started.base if state.started else None
    if given is None:
        return None
    return {
        "name": given.name,
        "path": given.hub_id or given.path,
        "recipe_id": record.recipe_id if record else None,
        "digest": record.digest if record else None,
    }


def _champion(state: RunState) -> dict[str, Any] | None:
    found = views.champion(state)
    if found is None:
        return None
    id_ = found["recipe_id"]
    fitness = state.fitness((id_, "selection", None))
    return {
        **found,
        "name": label(state.recipes[id_], state.recipes),
        "digest": state.built[id_][0],
        "components": dict(fitness.normalised) if fitness else {},
    }


def generations(state: RunState) -> list[dict[str, Any]]:
    """Return a row a generation: scores on its draw, the champion on selection with its components."""
    changed = {c.generation for c in state.champions}
    rows = []
    for row in report.generations(state):
        number = row["generation"]
        scores = [s for s in state.generations[number].scores if s is not None]
        fitness = (
            state.fitness((row["champion_id"], "selection", None)) if row["champion_id"] else None
        )
        rows.append(
            {
                **row,
                "spread": statistics.stdev(scores) if len(scores) > 1 else None,
                "changed": number in changed,
                "components": dict(fitness.normalised) if fitness else {},
            }
        )
    return rows


def population(state: RunState, generation: int | None, everything: bool) -> dict[str, Any]:
    """Return the candidates of a generation, of the newest, or of all."""
    numbers = sorted({g for g, _ in state.candidates})
    if generation is None:
        generation = numbers[-1] if numbers else None
    by_part = search_statistics.parts(state)
    rows = [
        {**(row := _candidate(state, number, slot)), "parts": by_part.get(row["recipe_id"])}
        for number, slot in sorted(state.candidates)
        if everything or number == generation
    ]
    return {"generation": generation, "generations": numbers, "rows": rows}


def _candidate(state: RunState, generation: int, slot: int) -> dict[str, Any]:
    built = state.candidates[generation, slot]
    id_ = built.recipe_id
    search = state.fitness((id_, "search", generation))
    selection = state.fitness((id_, "selection", None))
    measured = state.components((id_, "search", generation))
    done = state.generations.get(generation)
    return {
        "generation": generation,
        "slot": slot,
        "recipe_id": id_,
        "kind": built.type,
        "pipeline": label(built.recipe, state.recipes),
        "rank": done.ranking.index(id_) + 1 if done and id_ in done.ranking else None,
        "search": search.scalar if search else None,
        "selection": selection.scalar if selection else None,
        "perplexity": measured.perplexity if measured else None,
        "accuracy": measured.accuracy if measured else None,
        "parents": list(dict.fromkeys(parents(built.recipe))),
        "genes": genes(built.recipe, state),
        "digest": built.digest,
    }


def genes(recipe: Recipe, state: RunState) -> dict[str, float]:
    """Return the numbers that a candidate's merge was made with, by name."""
    if isinstance(recipe, Source | Merge):
        return {}
    found = genome(recipe, state.recipes)
    flat: dict[str, float] = {}
    merge = found.pipeline
    if isinstance(merge, Flow):
        for number, step in enumerate(merge.steps):
            _flatten(f"step {number + 1}", step.model_dump(mode="json"), (), flat)
        merge = merge.merged
    models = _names(state, merge.inputs)
    if isinstance(merge, Grouped):
        for group, params in zip(tensor_groups.names(merge.depths), merge.params, strict=True):
            _flatten(group, params, models, flat)
    else:
        _flatten("", merge.genes.model_dump(mode="json"), models, flat)
    for number, noise in enumerate(found.noises):
        flat[f"noise {number + 1}"] = noise.sigma
    return flat


def _names(state: RunState, inputs: Sequence[str]) -> tuple[str, ...]:
    """Return what the inputs of a merge are called: sources by their names, others by their ids."""
    records = state.started.sources if state.started else ()
    known = {record.recipe_id: record.name for record in records}
    return tuple(known.get(id_, id_[:8]) for id_ in inputs)


def _flatten(prefix: str, value: Any, models: Sequence[str], into: dict[str, float]) -> None:
    """Put every number in a value under its path; weights under the names of what they weigh."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _flatten(f"{prefix} {key}".strip(), inner, models, into)
    elif isinstance(value, list | tuple):
        by_model = prefix.endswith("weights") and len(value) == len(models)
        names = models if by_model else range(len(value))
        for name, inner in zip(names, value, strict=True):
            _flatten(f"{prefix} {name}", inner, models, into)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        into[prefix] = float(value)


def candidate(state: RunState, recipe_id: str) -> dict[str, Any]:
    """Return one candidate: its recipe, all its scores, its parents and children."""
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
                "components": event.components.model_dump(mode="json")
                if event.components
                else None,
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
        "genes": genes(recipe, state),
        "parents": list(dict.fromkeys(parents(recipe))),
        "children": [id_ for id_, other in state.recipes.items() if recipe_id in parents(other)],
        "evaluations": scores,
    }


def progress(state: RunState, generation: int | None = None) -> dict[str, Any]:
    """Return the source documents' progress message, at the end of a generation (the newest).

    `percent` goes by generations, so that it says the same whenever it is told.
    """
    rows = report.generations(state)
    rows = rows if generation is None else rows[: generation + 1]
    last = rows[-1] if rows else None
    assert state.submitted
    wanted, done = state.submitted.config.generations, last["generation"] if last else 0
    share = 1.0 if state.completed and generation is None else done / wanted if wanted else 0.0
    return {
        "type": "progress",
        "run": state.run,
        "task_id": state.run,
        "phase": "evomerge",
        "status": state.status,
        "generation": last["generation"] if last else None,
        "generations": wanted,
        "total_generations": wanted,
        "progress": min(1.0, share),
        "percent": 100 * min(1.0, share),
        "best_fitness": last["champion"] if last else None,
        "avg_fitness": last["mean"] if last else None,
        "diversity": last["diversity"] if last else None,
    }
