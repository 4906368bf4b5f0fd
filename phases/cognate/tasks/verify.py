"""The part of an audit that needs weights: train again and compare, check files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from evaluation import measured_again
from phases.cognate import findings, plan
from phases.cognate.events import CognateState
from phases.cognate.tasks.execute import Context, opened
from runs.errors import ForgeError
from runs.history.audit import Finding
from weights.folders.checkpoint import digest
from weights.making import model_files
from weights.recipes import Train, Transform
from weights.storage.output_folder import TRAINED, TRAINED_ALL
from weights.storage.weight_cache import Artifacts

Say = Callable[[str], None]


def rebuild(
    state: CognateState, cache: Artifacts, ids: Sequence[str], tolerance: float | None, say: Say
) -> Iterator[Finding]:
    """Train models again from nothing; yield an error for each segment with another digest.

    With a tolerance, also measure again, and compare the figures.
    """
    with tempfile.TemporaryDirectory() as empty:
        mine = Artifacts(Path(empty) / "cache")
        mine.supply = cache.supply
        try:
            context = opened(state, mine)
        except ForgeError as error:
            yield Finding("unchecked", "weights", f"nothing can be trained again: {error}")
            return
        for role, recipe in plan.models(state).items():
            if recipe.id in ids:
                yield from _trained(context, role, recipe, say)
        if tolerance is not None:
            yield from _measured(context, ids, tolerance, say)


def _trained(context: Context, role: str, recipe: Train | Transform, say: Say) -> Iterator[Finding]:
    """Train one model again; the log says what came out after every segment."""
    try:
        found = digest(context.weights(recipe))
    except ForgeError as error:
        yield Finding("error", "weights", f"{role}: {error}")
        return
    how = "trained" if isinstance(recipe, Train) else "made"
    say(f"{how} {role} ({recipe.id[:12]}) again: digest {found[:12]} as recorded")


def _measured(
    context: Context, ids: Sequence[str], tolerance: float, say: Say
) -> Iterator[Finding]:
    for task in findings.observations(context.state):
        recorded: Any = context.state.answers.get(task.key)
        if task.recipe_id not in ids or recorded is None:
            continue
        again: Any = context.carry_out(task)
        yield from measured_again.compared(recorded, again, tolerance, say)


def cached(state: CognateState, cache: Artifacts) -> Iterator[Finding]:
    """Yield an error for each model whose cached files have another digest."""
    return model_files.cached((made.digest for made in state.made.values()), cache)


def document(folder: Path) -> dict[str, Any] | None:
    """Return the document of a model's folder, or of the folder of all; None if there is none.

    Raises DataError.
    """
    return model_files.document(folder, (TRAINED, TRAINED_ALL))


def folder(place: Path, document: dict[str, Any], state: CognateState | None) -> Iterator[Finding]:
    """Compare the weights in a folder with its document, and with its run if that is known."""
    made = None if state is None else {}
    if state is not None and state.started:
        recipes = plan.models(state).items()
        made = {role: state.made[r.id].digest for role, r in recipes if r.id in state.made}
    return model_files.folder(place, document, made)
