"""Snapshots of trainings on disk: a folder each, named by the id of the snapshot's recipe.

    ID/model.safetensors        the weights
    ID/optimiser.safetensors    the other tensors that the next step needs
    ID/snapshot.json            stem, step, digests of both files, and the figures of the segment

A folder appears whole or not at all: it is filled under another name, synced and renamed. Snapshots
are a cache: a missing or damaged one is made again from an earlier one.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from agent_forge.runs.errors import ForgeError, SnapshotDamagedError
from agent_forge.weights.folders import safetensors_places
from agent_forge.weights.folders.checkpoint import digest, publish
from agent_forge.weights.recipes import Frozen, Train
from agent_forge.weights.training.loop import Snapshot

log = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
OPTIMISER = "optimiser.safetensors"
FACTS = "snapshot.json"


class Facts(Frozen):
    """The content of snapshot.json."""

    recipe: str
    stem: str
    step: int
    #: Digests of tensors (`weights.folders.checkpoint.digest`), not of files:
    #: safetensors orders no metadata.
    weights: str
    optimiser: str
    losses: tuple[float, ...]
    rates: tuple[float, ...]
    norms: tuple[float, ...]
    tokens: int
    seconds: float


class Snapshots:
    """The snapshots of any number of trainings in one folder."""

    def __init__(self, folder: Path) -> None:
        """Use a folder, which is made with the first snapshot."""
        self.folder = folder

    def write(self, recipe: Train, snapshot: Snapshot) -> Facts:
        """Write a snapshot, synced, under the id of `recipe.to(snapshot.step)`; return its Facts.

        Raises UnavailableError if the disk is full or the folder cannot be written.
        """
        training = recipe.to(snapshot.step)
        facts = Facts(
            recipe=training.id,
            stem=training.stem,
            step=snapshot.step,
            weights=digest(snapshot.weights),
            optimiser=digest(snapshot.optimiser),
            losses=snapshot.losses,
            rates=snapshot.rates,
            norms=snapshot.norms,
            tokens=snapshot.tokens,
            seconds=snapshot.seconds,
        )

        def fill(hidden: Path) -> None:
            # Aligned in the file, so that a frozen model is the mapped file itself.
            safetensors_places.write(hidden, snapshot.weights, sys.maxsize)
            save_file(snapshot.optimiser, hidden / OPTIMISER)
            (hidden / FACTS).write_text(facts.model_dump_json(indent=1) + "\n", "utf-8")

        publish(self.folder / training.id, fill)
        return facts

    def read(self, recipe: Train) -> Snapshot | None:
        """Return the Snapshot after `recipe.upto` steps, its files mapped; None if there is none.

        Raises SnapshotDamagedError if a file is missing, truncated or changed.
        """
        folder = self.folder / recipe.id
        if not folder.is_dir():
            return None
        facts = self._facts(folder)
        if (facts.recipe, facts.stem, facts.step) != (recipe.id, recipe.stem, recipe.upto):
            raise SnapshotDamagedError(f"{folder / FACTS} is that of another training.")
        return Snapshot(
            facts.step,
            _tensors(folder / WEIGHTS, facts.weights),
            _tensors(folder / OPTIMISER, facts.optimiser),
            facts.losses,
            facts.rates,
            facts.norms,
            facts.tokens,
            facts.seconds,
        )

    def files(self, recipe: Train) -> dict[str, Path]:
        """Return file name → path of the snapshot after `recipe.upto` steps, even if it is missing."""
        return {name: self.folder / recipe.id / name for name in (WEIGHTS, OPTIMISER, FACTS)}

    def nearest(self, recipe: Train) -> Snapshot | None:
        """Return the training's latest whole Snapshot after at most `recipe.upto` steps, or None.

        It deletes damaged snapshots, which are made again from an earlier one. None means that the
        training begins at its first step.
        """
        for step in reversed(self.steps(recipe)):
            if step > recipe.upto:
                continue
            try:
                return self.read(recipe.to(step))
            except SnapshotDamagedError as error:
                log.warning("%s The snapshot is removed and made again.", error)
                shutil.rmtree(self.folder / recipe.to(step).id, ignore_errors=True)
        return None

    def steps(self, recipe: Train) -> list[int]:
        """Return the step numbers of the training that have a snapshot here, ascending."""
        training_facts = (facts for _, facts in self._all() if facts.stem == recipe.stem)
        inside = range(recipe.first, recipe.steps + 1)
        return sorted(facts.step for facts in training_facts if facts.step in inside)

    def keep_newest(self, recipe: Train, spared_ids: Collection[str] = ()) -> None:
        """Delete all snapshots of the training but the newest and those with an id in `spared_ids`.

        Call it once the newest is recorded. An interrupted call leaves too many, never too few.
        """
        steps = self.steps(recipe)
        for step in steps[:-1]:
            id_ = recipe.to(step).id
            if id_ not in spared_ids:
                shutil.rmtree(self.folder / id_, ignore_errors=True)

    def _all(self) -> Iterator[tuple[Path, Facts]]:
        """Yield (folder, facts) of the snapshots whose facts can be read, of any training."""
        for file in sorted(self.folder.glob(f"*/{FACTS}")):
            try:
                yield file.parent, self._facts(file.parent)
            except SnapshotDamagedError:
                continue

    @staticmethod
    def _facts(folder: Path) -> Facts:
        """Return the Facts in a folder's snapshot.json. Raises SnapshotDamagedError."""
        try:
            return Facts.model_validate_json((folder / FACTS).read_bytes())
        except (OSError, ValidationError) as error:
            raise SnapshotDamagedError(f"{folder / FACTS} cannot be read: {error}") from error


def _tensors(file: Path, expected: str) -> dict[str, torch.Tensor]:
    """Return name → tensor of a mapped file. Raises SnapshotDamagedError for another digest."""
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError, ForgeError) as error:
        raise SnapshotDamagedError(f"{file} cannot be read: {error}") from error
    if digest(tensors) != expected:
        raise SnapshotDamagedError(f"{file} does not have the digest that was recorded.")
    return tensors
