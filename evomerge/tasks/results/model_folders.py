"""Folders with the models of a merging run: where they may be, and building what is nowhere."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from evomerge.run.origins import given_sources
from evomerge.run.state import RunState
from evomerge.tasks.results import champion
from evomerge.tasks.results.verify_folder import documents, taken_over
from runs.errors import SourceError
from runs.event_types import ModelReference, SourceRecord
from runs.home import Home
from weights.folders import companions
from weights.folders.checkpoint import open_checkpoint
from weights.folders.holding import holds
from weights.folders.kept_folders import DISK_BYTES, alone, evict, touch
from weights.storage.weight_cache import Artifacts


def settle(home: Home, state: RunState, head: str, recipe_id: str, folders: Sequence[Path]) -> str:
    """Return a folder with a model of the run; build it into the last of `folders` if need be.

    `head` is the head of the run's chain. Raise ForgeError.
    """
    target, digest = folders[-1], state.built[recipe_id][0]
    for folder in folders:
        if _fits(home, state, head, recipe_id, digest, folder):
            if folder == target:
                touch(target)
            return str(folder.resolve())
    sources = given_sources(state, recipe_id)
    if sources and sources[0][1].model:
        return str(_own_copy(home, *sources[0]))
    target.parent.mkdir(parents=True, exist_ok=True)
    with alone(target.parent / f".{target.name[:16]}.lock"):
        if not _fits(home, state, head, recipe_id, digest, target):  # another may have built it
            champion.write(state, Artifacts.of(home), recipe_id, target, head)
    evict(target.parent, DISK_BYTES, lambda place: shutil.rmtree(place, ignore_errors=True))
    return str(target)


def _fits(
    home: Home, state: RunState, head: str, recipe_id: str, digest: str, folder: Path
) -> bool:
    """Return True if a folder has the weights and the run's config and tokenizer.

    A source must have the files that the run pinned, a merge the files that the run writes. A model
    of a run that pinned no files is checked by its weights alone.
    """
    if not holds(folder, digest):
        return False
    assert state.started
    if not state.started.base.model:
        return True
    if sources := given_sources(state, recipe_id):
        return _digests(folder) in [record.files for _, record in sources]
    weights = open_checkpoint(folder).tensors()
    return taken_over(folder, documents(home, state, recipe_id, weights, head))


def _digests(folder: Path) -> dict[str, str] | None:
    """Return the digests of a folder's companion files; None if they cannot be read."""
    try:
        return companions.digests(folder)
    except (SourceError, OSError):
        return None


def _own_copy(home: Home, reference: ModelReference, pinned: SourceRecord) -> Path:
    """Return this machine's own copy of a run's source, as the run pinned it. Raise ForgeError."""
    supply = Artifacts.of(home).supply
    place = supply.model(reference, pinned)
    if holds(place, pinned.digest):
        return place
    supply.forget(place)  # the copy is damaged: the next call makes or fetches another
    return supply.model(reference, pinned)
