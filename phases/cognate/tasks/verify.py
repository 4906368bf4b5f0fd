"""The part of an audit that needs weights: train again and compare, check files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from phases.cognate import plan
from phases.cognate.events import CognateState
from phases.cognate.tasks.execute import Context
from runs.history.audit import Finding
from studies import training_verify
from studies.making import model_files
from studies.training_verify import Say
from weights.storage.output_folder import TRAINED, mark_of
from weights.storage.weight_cache import Artifacts


def rebuild(
    state: CognateState, cache: Artifacts, ids: Sequence[str], say: Say
) -> Iterator[Finding]:
    """Make models again; yield an error for each with another digest."""
    recipes = {name: one for name, one in plan.models(state).items() if one.id in ids}
    return training_verify.rebuild(Context, state, cache, recipes, say)


def cached(state: CognateState, cache: Artifacts) -> Iterator[Finding]:
    """Yield an error for each model whose cached files have another digest."""
    return model_files.cached((made.digest for made in state.made.values()), cache)


def document(folder: Path) -> dict[str, Any] | None:
    """Return the document of a model's folder, or of the folder of all; None if there is none.

    Raises DataError.
    """
    return model_files.document(folder, (TRAINED, mark_of("cognate")))


def folder(place: Path, document: dict[str, Any], state: CognateState | None) -> Iterator[Finding]:
    """Compare the weights in a folder with its document, and with its run if that is known."""
    made = None if state is None else {}
    if state is not None and state.started:
        recipes = plan.models(state).items()
        made = {role: state.made[r.id].digest for role, r in recipes if r.id in state.made}
    return model_files.folder(place, document, made)
