"""Runs in the log: reading histories, finding runs and candidates, describing recipes.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from events import Envelope
from evomerge.recipes.recipe import Merge, Mutate, Recipe, Source, label
from evomerge.run import events
from evomerge.run.state import RunState, fold
from evomerge.run.wording import gist
from runs.errors import AmbiguousError, NotFoundError, TamperedError
from runs.streams import PREFIX, stream

__all__ = [
    "PREFIX", "Log", "describe", "find", "full_name", "gist", "history", "load", "news", "place",
    "stream",
]  # fmt: skip


class Log(Protocol):
    """The part of a log that is read here: of an event store, or of an archive."""

    def version(self, stream: str) -> int:
        """Return the stream's version; 0 if the stream is missing."""
        ...

    def iterate(self, stream: str, after: int = 0, upto: int | None = None) -> Iterator[Envelope]:
        """Yield the stream's rows in order: after version `after`, up to version `upto`."""
        ...

    def streams(self, prefix: str = "") -> list[Envelope]:
        """Return the first row of every stream whose name starts with `prefix`."""
        ...


def full_name(store: Log, run: str) -> str:
    """Return the run that a name or the beginning of a name means.

    Raises NotFoundError, and AmbiguousError if several runs begin so.
    """
    if store.version(stream(run)):
        return run
    known = [row.stream.removeprefix(PREFIX) for row in store.streams(PREFIX)]
    alike = [name for name in known if run and name.startswith(run)]
    if len(alike) == 1:
        return alike[0]
    if alike:
        several = ", ".join(alike[:5])
        raise AmbiguousError(f"run {run!r} is not known; it is the beginning of {several}.")
    hint = f"runs here: {', '.join(known[-5:])}" if known else "there are no runs here"
    raise NotFoundError(f"run {run!r} is not known; {hint}. List them with `forge runs`.")


def history(
    store: Log, run: str, upto: int | None = None, _forks: tuple[str, ...] = ()
) -> Iterator[Envelope]:
    """Yield every event of a run in order; a fork's past, from other streams, comes first.

    `upto` is a version of the run's own stream; the past is always whole. Raises TamperedError if
    the past is not the one that was forked.
    """
    first = list(store.iterate(stream(run), upto=1))
    if first and first[0].type == events.Forked.type:
        fork = events.REGISTRY.load(first[0])
        assert isinstance(fork, events.Forked)
        row = None
        forks = (*_forks, run)
        past = () if fork.parent in forks else history(store, fork.parent, fork.version, forks)
        for row in past:
            yield row
        if row is None or (row.version, row.hash) != (fork.version, fork.head):
            raise TamperedError(
                f"run {run} was forked from run {fork.parent} at its event {fork.version}, which is "
                f"not there as it was: the history of {fork.parent} was changed. Restore it, or "
                f"import an archive of {run}."
            )
    yield from store.iterate(stream(run), upto=upto)


def news(store: Log, run: str, state: RunState) -> list[Envelope]:
    """Return the events that `state` has not seen yet."""
    if state.version:
        return list(store.iterate(stream(run), after=state.version))
    return list(history(store, run))


def load(store: Log, run: str, showing: bool = False) -> RunState:
    """Return the state of a run, by its name or the beginning of it. Raises NotFoundError.

    `showing` skips events that a newer version wrote; nothing may be decided from such a state.
    """
    return fold(history(store, full_name(store, run)), showing)


def find(state: RunState, candidate: str) -> str:
    """Return the recipe id that "champion", an id or the beginning of an id means.

    Raises NotFoundError.
    """
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
    """Return a recipe's place in the run: "generation 3/5", "baseline mean", "given" (a source)."""
    for (generation, slot), candidate in state.candidates.items():
        if candidate.recipe_id == recipe_id:
            return f"generation {generation}/{slot}"
    for name, id_ in state.baselines.items():
        if id_ == recipe_id:
            return f"baseline {name}"
    return "given"


def describe(state: RunState, recipe_id: str, recipe: Recipe) -> str:
    """Return a description of a recipe in a few words."""
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
