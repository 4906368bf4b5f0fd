"""The part of an audit of a study that needs weights: make again and compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from runs.errors import ForgeError, UnreproducedError
from runs.history.audit import Finding
from studies.making import model_files
from studies.making.events import Making
from studies.making.making import MakingState
from studies.training_context import TrainingContext
from weights.folders.checkpoint import digest
from weights.recipes import Train
from weights.storage.output_folder import TRAINED, mark_of
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
        again = digest(context.weights(recipe))
    except ForgeError as error:
        yield Finding("error", "weights", f"{name}: {error}")
        return
    how = "trained" if isinstance(recipe, Train) else "made"
    say(f"{how} {name} ({recipe.id[:12]}) again: digest {again[:12]} as recorded")


def document(kind: str, folder: Path) -> dict[str, Any] | None:
    """Return the document of a model's folder, or of the folder of all; None if there is none.

    Raises DataError.
    """
    return model_files.document(folder, (mark_of(kind), TRAINED))


def folder(
    state: MakingState | None, recipes: Mapping[str, Making], place: Path, document: dict[str, Any]
) -> Iterator[Finding]:
    """Compare what is in a result's folder with the models of a run; None: the log lacks it."""
    made = {} if state is None else state.made
    digests = {role: made[one.id].digest for role, one in recipes.items() if one.id in made}
    yield from model_files.folder(place, document, None if state is None else digests)
