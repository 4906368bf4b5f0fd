"""The part of an audit that trains again and compares, for all kinds that train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from evaluation import measured_again
from evaluation.observing import Observe
from evaluation.training_runs.training_context import TrainingContext
from runs.errors import ForgeError
from runs.history.audit import Finding
from weights.folders.checkpoint import digest
from weights.making import model_files
from weights.making.events import Making
from weights.making.making import MakingState
from weights.recipes import Train
from weights.storage.weight_cache import Artifacts

Say = Callable[[str], None]


def rebuild(
    context_of: type[TrainingContext[Any]],
    state: MakingState,
    cache: Artifacts,
    recipes: Mapping[str, Making],
    observations: Sequence[Observe],
    tolerance: float | None,
    say: Say,
) -> Iterator[Finding]:
    """Make the models of `recipes` again from nothing; yield an error for each that differs.

    The log says what came out after every segment. With a tolerance, also make the `observations`
    again, and compare the figures.
    """
    with model_files.from_nothing(cache) as mine:
        try:
            context = context_of.opened(state, mine)
        except ForgeError as error:
            yield Finding("unchecked", "weights", f"nothing can be made again: {error}")
            return
        for name, recipe in recipes.items():
            yield from _made(context, name, recipe, say)
        for task in observations if tolerance is not None else ():
            recorded: Any = state.answers.get(task.key)
            if recorded is not None:
                again: Any = context.carry_out(task)
                yield from measured_again.compared(recorded, again, tolerance or 0.0, say)


def _made(context: TrainingContext[Any], name: str, recipe: Making, say: Say) -> Iterator[Finding]:
    try:
        found = digest(context.weights(recipe))
    except ForgeError as error:
        yield Finding("error", "weights", f"{name}: {error}")
        return
    how = "trained" if isinstance(recipe, Train) else "made"
    say(f"{how} {name} ({recipe.id[:12]}) again: digest {found[:12]} as recorded")
