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
from runs.errors import DataError, ForgeError
from runs.history.audit import Finding
from runs.system import bounded_files
from weights.folders.checkpoint import digest, open_checkpoint
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
    for made in state.made.values():
        if cache.check(made.digest) is False:
            yield Finding("error", "files", f"the cached weights {made.digest[:12]} are damaged")


def document(folder: Path) -> dict[str, Any] | None:
    """Return the document of a model's folder, or of the folder of all; None if there is none.

    Raises DataError.
    """
    for name in (TRAINED, TRAINED_ALL):
        if (folder / name).is_file():
            found = bounded_files.read_object(folder / name, error=DataError)
            if {"run", "chain_head"} <= set(found):
                return found
            raise DataError(f"{folder / name} does not say which run made the models.")
    return None


def folder(place: Path, document: dict[str, Any], state: CognateState | None) -> Iterator[Finding]:
    """Compare the weights in a folder with its document, and with its run if that is known."""
    parts = document.get("models") or {"": document.get("digest")}
    if state is None:
        yield Finding("unchecked", "files", f"run {document['run']} is not in this log")
    known = _recorded(state) if state is not None and state.started else {}
    for role, said in parts.items():
        try:
            found = digest(open_checkpoint(place / role).tensors())
        except ForgeError as error:
            yield Finding("error", "files", str(error))
            continue
        if found != said:
            what = (
                f"{place / role}: its weights are {found[:12]}, its document says {str(said)[:12]}"
            )
            yield Finding("error", "files", what)
        name = role or str(document.get("role"))
        if state is not None and known.get(name) != said:
            what = f"{place / role}: the run's {name} model is not {str(said)[:12]}"
            yield Finding("error", "files", what)


def _recorded(state: CognateState) -> dict[str, str]:
    """Return role → digest of what the run made."""
    models = plan.models(state).items()
    return {role: state.made[r.id].digest for role, r in models if r.id in state.made}
