"""The part of an audit that trains again and compares, for all kinds that train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runs.errors import ForgeError, UnreproducedError
from runs.history.audit import Finding
from studies.making.events import Making
from studies.making.making import MakingState
from studies.training_context import TrainingContext
from weights.folders.checkpoint import digest
from weights.recipes import Train
from weights.storage.weight_cache import Artifacts

Say = Callable[[str], None]


def rebuild(
    context_of: type[TrainingContext[Any]],
    state: MakingState,
    cache: Artifacts,
    recipes: Mapping[str, Making],
    say: Say,
) -> Iterator[Finding]:
    """Make the models of `recipes` again; yield an error for each that differs.

    The log says what came out after every segment.
    """
    try:
        context = context_of.opened(state, cache)
    except ForgeError as error:
        level = "error" if isinstance(error, UnreproducedError) else "unchecked"
        yield Finding(level, "weights", f"nothing can be made again: {error}")
        return
    for name, recipe in recipes.items():
        yield from _made(context, name, recipe, say)


def _made(context: TrainingContext[Any], name: str, recipe: Making, say: Say) -> Iterator[Finding]:
    try:
        found = digest(context.weights(recipe))
    except ForgeError as error:
        yield Finding("error", "weights", f"{name}: {error}")
        return
    how = "trained" if isinstance(recipe, Train) else "made"
    say(f"{how} {name} ({recipe.id[:12]}) again: digest {found[:12]} as recorded")
