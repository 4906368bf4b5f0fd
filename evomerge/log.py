"""Runs in the log: their streams, finding them and their candidates, describing recipes. No torch."""

from __future__ import annotations

from events import EventStore
from evomerge.errors import NotFoundError
from evomerge.recipe import Merge, Mutate, Recipe, Source, label
from evomerge.state import RunState, fold

#: Streams of merging runs are named so.
PREFIX = "evomerge/"


def stream(run: str) -> str:
    """The stream of a run."""
    return PREFIX + run


def load(store: EventStore, run: str) -> RunState:
    """The state of a run, by its name or the beginning of it. Raises NotFoundError."""
    rows = store.read(stream(run))
    if rows:
        return fold(rows)
    known = [row.stream.removeprefix(PREFIX) for row in store.streams(PREFIX)]
    alike = [name for name in known if run and name.startswith(run)]
    if len(alike) == 1:
        return fold(store.read(stream(alike[0])))
    hint = f"runs here: {', '.join(known[-5:])}" if known else "there are no runs here"
    raise NotFoundError(f"run {run!r} is not known; {hint}. List them with `forge runs`.")


def find(state: RunState, candidate: str) -> str:
    """The recipe id that "champion", an id or the beginning of one means. Raises NotFoundError."""
    if candidate == "champion":
        if state.champion is None:
            raise NotFoundError(f"run {state.run} has no champion yet.")
        return state.champion
    alike = [id_ for id_ in state.recipes if candidate and id_.startswith(candidate)]
    if len(alike) != 1:
        what = "is not known" if not alike else "is the beginning of several"
        raise NotFoundError(
            f"candidate {candidate!r} {what} in run {state.run}. `forge events {state.run}` "
            "lists them."
        )
    return alike[0]


def place(state: RunState, recipe_id: str) -> str:
    """Where a recipe stood in the run: "generation 3/5", "baseline mean", "source"."""
    for (generation, slot), candidate in state.candidates.items():
        if candidate.recipe_id == recipe_id:
            return f"generation {generation}/{slot}"
    for name, id_ in state.baselines.items():
        if id_ == recipe_id:
            return f"baseline {name}"
    return "given"


def describe(state: RunState, recipe_id: str, recipe: Recipe) -> str:
    """One recipe in a few words."""
    assert state.started
    if isinstance(recipe, Source):
        known = {s.recipe_id: s.name for s in (state.started.sources)}
        return f"source {known.get(recipe_id, state.started.base.name)}"
    if isinstance(recipe, Mutate):
        parts = (("genes", recipe.pipeline), ("noise", recipe.noise))
        changed = " and ".join(what for what, present in parts if present)
        return f"mutant of {recipe.parent[:12]} ({changed})"
    inputs = ", ".join(i[:12] for i in recipe.inputs)
    known_as = recipe.method if isinstance(recipe, Merge) else label(recipe, state.recipes)
    return f"{known_as} of {inputs}"
