"""Candidates as rows: one table of columns, from which every screen and file chooses. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent_forge.evaluation.data.slices import Slice
from agent_forge.events import canonical_json
from agent_forge.evomerge.recipes import tensor_groups
from agent_forge.evomerge.recipes.recipe import (
    Flow,
    Grouped,
    Merge,
    Recipe,
    Source,
    genome,
    label,
    parents,
)
from agent_forge.evomerge.reports import search_statistics
from agent_forge.evomerge.run.state import RunState

Row = dict[str, object]


@dataclass(frozen=True)
class RunModel:
    """A model of a run: what a slot held, or the base, a source or a baseline, which have no slot."""

    state: RunState
    recipe_id: str
    #: How it was made: the event's type, or base, source, baseline.
    kind: str
    #: What the user calls a base, source or baseline.
    name: str | None = None
    generation: int | None = None
    slot: int | None = None

    @property
    def recipe(self) -> Recipe:
        """The model's recipe."""
        return self.state.recipes[self.recipe_id]

    def rank(self) -> int | None:
        """Return the place in its generation's ranking, from 1; None if it was not ranked."""
        done = None if self.generation is None else self.state.generations.get(self.generation)
        ranked = done is not None and self.recipe_id in done.ranking
        return done.ranking.index(self.recipe_id) + 1 if done and ranked else None

    def fitness(self, slice_: Slice) -> float | None:
        """Return the fitness on a slice, on search that of its generation's draw; None without one."""
        if slice_ == "search" and self.generation is None:
            return None
        generation = self.generation if slice_ == "search" else None
        slice_fitness = self.state.fitness((self.recipe_id, slice_, generation))
        return slice_fitness.scalar if slice_fitness else None

    def measured(self, component: str) -> float | None:
        """Return a component measured on its generation's draw; None if it was not measured."""
        components = self.state.components((self.recipe_id, "search", self.generation))
        return getattr(components, component) if components else None


#: Column → its value. `rank` counts from 1, `slot` and `generation` from 0.
COLUMNS: Mapping[str, Callable[[RunModel], object]] = {
    "generation": lambda m: m.generation,
    "slot": lambda m: m.slot,
    "recipe_id": lambda m: m.recipe_id,
    "kind": lambda m: m.kind,
    "name": lambda m: m.name,
    "pipeline": lambda m: label(m.recipe, m.state.recipes),
    "technique": lambda m: search_statistics.technique(m.state, m.recipe_id),
    "rank": RunModel.rank,
    "search": lambda m: m.fitness("search"),
    "selection": lambda m: m.fitness("selection"),
    "perplexity": lambda m: m.measured("perplexity"),
    "accuracy": lambda m: m.measured("accuracy"),
    "parents": lambda m: list(dict.fromkeys(parents(m.recipe))),
    "genes": lambda m: genes(m.recipe, m.state),
    "digest": lambda m: m.state.built[m.recipe_id][0],
    "champion": lambda m: m.recipe_id in {c.recipe_id for c in m.state.champions},
    "recipe": lambda m: canonical_json(m.recipe.model_dump(mode="json")),
}

#: Columns that a look at a generation needs, and those of the page.
SHORT = ("generation", "slot", "recipe_id", "kind", "pipeline", "rank", "search", "selection")
FULL = (*SHORT, "perplexity", "accuracy", "parents", "genes", "digest")


def row(model: RunModel, columns: Sequence[str]) -> Row:
    """Return the model's row, {column: value}, in the columns' order."""
    return {name: COLUMNS[name](model) for name in columns}


def generations(state: RunState) -> list[int]:
    """Return the numbers of the generations that have candidates."""
    return sorted({generation for generation, _ in state.candidates})


def slots(state: RunState, generation: int | None = None) -> Iterator[RunModel]:
    """Yield a `RunModel` for each slot of a generation (None: of all), by generation and slot."""
    for (number, slot), built in sorted(state.candidates.items()):
        if generation in (None, number):
            yield RunModel(state, built.recipe_id, built.type, None, number, slot)


def newest(state: RunState, columns: Sequence[str] = SHORT) -> list[Row]:
    """Return the rows, {column: value} each, of the newest generation that has candidates; or []."""
    numbers = generations(state)
    return [row(model, columns) for model in slots(state, numbers[-1])] if numbers else []


def given(state: RunState) -> Iterator[RunModel]:
    """Yield a `RunModel` for the base, each source and each baseline; none before the start."""
    if state.started is None:
        return
    for kind, models in (("base", [state.started.base]), ("source", state.started.sources)):
        for model in models:
            yield RunModel(state, model.recipe_id, kind, model.name)
    for name, recipe_id in state.baselines.items():
        yield RunModel(state, recipe_id, "baseline", name)


def genes(recipe: Recipe, state: RunState) -> dict[str, float]:
    """Return {name: number} of all numbers that a candidate is made with; {} for a fixed merge."""
    if isinstance(recipe, Source | Merge):
        return {}
    genotype = genome(recipe, state.recipes)
    flat: dict[str, float] = {}
    merge = genotype.pipeline
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
    for number, noise in enumerate(genotype.noises):
        flat[f"noise {number + 1}"] = noise.sigma
    return flat


def _names(state: RunState, inputs: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a merge's inputs: a source's name, or else the beginning of the id."""
    records = state.started.sources if state.started else ()
    names = {record.recipe_id: record.name for record in records}
    return tuple(names.get(id_, id_[:8]) for id_ in inputs)


def _flatten(prefix: str, value: object, models: Sequence[str], into: dict[str, float]) -> None:
    """Put every number in `value` into `into`, by its path; weights by the names of their models."""
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
