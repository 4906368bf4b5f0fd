"""The part of an audit that needs weights: make again and compare, check files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from evaluation import measured_again
from phases.bitnet import findings, plan
from phases.bitnet.events import BitnetState
from phases.bitnet.tasks.execute import Context, opened
from runs.errors import ForgeError
from runs.history.audit import Finding
from weights.folders.checkpoint import digest
from weights.making import model_files
from weights.making.events import Making
from weights.storage.output_folder import TERNARY, TRAINED
from weights.storage.weight_cache import Artifacts

Say = Callable[[str], None]


def rebuild(
    state: BitnetState, cache: Artifacts, ids: Sequence[str], tolerance: float | None, say: Say
) -> Iterator[Finding]:
    """Make models again from the given one; yield an error for each with another digest.

    With a tolerance, also measure again, and compare the figures.
    """
    with tempfile.TemporaryDirectory() as empty:
        mine = Artifacts(Path(empty) / "cache")
        mine.supply = cache.supply
        try:
            context = opened(state, mine)
        except ForgeError as error:
            yield Finding("unchecked", "weights", f"nothing can be made again: {error}")
            return
        for name, recipe in plan.recipes(state).items():
            if recipe.id in ids:
                yield from _made(context, name, recipe, say)
        if tolerance is not None:
            yield from _measured(context, ids, tolerance, say)


def _made(context: Context, name: str, recipe: Making, say: Say) -> Iterator[Finding]:
    """Make one model again; the log says what came out after every segment."""
    try:
        found = digest(context.weights(recipe))
    except ForgeError as error:
        yield Finding("error", "weights", f"{name}: {error}")
        return
    say(f"made {name} ({recipe.id[:12]}) again: digest {found[:12]} as recorded")


def _measured(
    context: Context, ids: Sequence[str], tolerance: float, say: Say
) -> Iterator[Finding]:
    for task in findings.observations(context.state):
        recorded: Any = context.state.answers.get(task.key)
        if task.recipe_id not in ids or recorded is None:
            continue
        again: Any = context.carry_out(task)
        yield from measured_again.compared(recorded, again, tolerance, say)


def cached(state: BitnetState, cache: Artifacts) -> Iterator[Finding]:
    """Yield an error for each model whose cached files have another digest."""
    return model_files.cached((made.digest for made in state.made.values()), cache)


def document(folder: Path) -> dict[str, Any] | None:
    """Return the document of a model's folder, or of the folder of all; None if there is none.

    Raises DataError.
    """
    return model_files.document(folder, (TERNARY, TRAINED))


def folder(place: Path, document: dict[str, Any], state: BitnetState | None) -> Iterator[Finding]:
    """Compare the weights in a folder with its document, and with its run if that is known."""
    made = None if state is None else {}
    if state is not None and state.started:
        recipes = plan.recipes(state).items()
        made = {role: state.made[r.id].digest for role, r in recipes if r.id in state.made}
    return model_files.folder(place, document, made)
