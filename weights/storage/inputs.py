"""Models of a run that this machine lacks, from the shared store or from the Hub.

The worker that starts the run puts its inputs into the store. A worker that fetches them checks,
before any use, the digests that `started` records, as it does for files of its own.

    model-ADDRESS   a whole model, by its content address (`weights/storage/model_copies.py`)
    DIGEST          bare weights (`weights/storage/weight_cache.py`), or a run's items
                    (`evaluation/kept_items.py`)
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runs.errors import (
    ConfigError,
    ForgeError,
    SourceChangedError,
    SourceError,
    TamperedError,
    UnavailableError,
)
from runs.event_types import ModelReference, SourceRecord
from weights.folders import adapter_folders, checkpoint, companions
from weights.folders.checkpoint import Checkpoint
from weights.folders.sources import make_again, resolve
from weights.recipes import Source
from weights.storage.model_copies import ORIGIN, Copies, written_since

if TYPE_CHECKING:
    from runs.home import Home
    from weights.model import Model
    from weights.storage.artifact_store import Vault

log = logging.getLogger(__name__)


def stored(address: str) -> str:
    """Return the name in the store of the whole model with this content address."""
    return f"model-{address}"


def _difference(reference: ModelReference, pinned: SourceRecord, place: Path) -> str:
    """Return the error text that says which files of a model differ from the pinned ones."""
    digests = companions.digests(place)
    changed = [n for n in {**pinned.files, **digests} if pinned.files.get(n) != digests.get(n)]
    what = f": {', '.join(changed)} differ" if changed else ""
    return (
        f"model {pinned.name} has changed since the run started{what} ({reference.path}). Put the old "
        "files back, or start a new run."
    )


def check_named(reference: ModelReference, weights_digest: str, place: Path) -> None:
    """Raise SourceError if a model was submitted with a digest and its weights have another now.

    `weights_digest` is the digest of the weights as the run reads them, `place` the model's copy.
    """
    if reference.digest in (None, weights_digest):
        return
    if reference.digest != checkpoint.digest(checkpoint.open_checkpoint(place).tensors()):
        raise SourceError(
            f"model {reference.name}: the weights in {reference.path} have changed since the run was "
            "submitted. Submit it again."
        )


def recorded(reference: ModelReference, place: Path, opened: Checkpoint) -> SourceRecord:
    """Return the record of a model as a run starts with it, by reading all of its weights.

    `place` is the model's copy, `opened` its checkpoint. Raises SourceError by `check_named`.
    """
    weights_digest = checkpoint.digest(opened.tensors())
    check_named(reference, weights_digest, place)
    return SourceRecord(
        name=reference.name,
        recipe_id=Source(digest=weights_digest).id,
        digest=weights_digest,
        sketch="",
        parameters=opened.parameters,
        model=place.name,
        files=companions.digests(place),
    )


class Supply:
    """A run's inputs on this machine: model copies, and what is exchanged with the shared store."""

    def __init__(self, folder: Path, vault: Vault | None, cache: Any = None) -> None:
        #: The folder for what a run pinned and this machine keeps.
        self.folder = folder
        self._vault = vault
        #: The weight cache that this is part of; the log of its home says which runs made an input.
        self._cache = cache
        self._copies = Copies(folder.parent / "models")

    def model(self, reference: ModelReference, pinned: SourceRecord | None) -> Path:
        """Return this machine's own copy of a model; `pinned` is its record in `started`.

        Raises UnavailableError if the model is not here (another machine may have it),
        SourceChangedError if the model that is here is not the pinned one.
        """
        if pinned is None or not pinned.model:  # no model is pinned, or only its weights are
            return self._copies.take(self._given(reference))
        place, refused = self._copies.find(pinned.model, pinned.files), ""
        if place is None:
            place, refused = self._fetched(pinned)
        if place is None:
            place = self._copies.take(self._given(reference, refused))
        elif written_since(place, Path(reference.path)):
            log.warning(
                "the files of model %s were changed since the run started: %s. The run goes on with "
                "its own copy of the model as it was.",
                reference.name,
                reference.path,
            )
        if place.name != pinned.model:
            raise SourceChangedError(_difference(reference, pinned, place))
        return place

    def checked(self, place: Path, pinned: SourceRecord | None) -> Model:
        """Return the model of a copy; `pinned` is its record in `started`.

        Raises SourceChangedError, and forgets the copy, if it has other weights than those.
        """
        opened = checkpoint.open_checkpoint(place)
        if pinned is not None and checkpoint.digest(opened.tensors()) != pinned.digest:
            self.forget(place)
            raise SourceChangedError(
                f"the weights of model {pinned.name} are not those that the run has pinned. Put the "
                "old files back, or start a new run."
            )
        return opened.model()

    def forget(self, place: Path) -> None:
        """Remove a copy whose weights turned out to be damaged."""
        log.warning("the copy %s of a model is damaged: it is made again", place.name[:12])
        self._copies.drop(place)

    def _fetched(self, pinned: SourceRecord) -> tuple[Path | None, str]:
        """Return a copy fetched from the store; or None, and why the store's copy was refused."""
        try:
            if self.fetch(
                stored(pinned.model), self._copies.place(pinned.model), companions.CONFIG
            ):
                return self._copies.find(pinned.model, pinned.files), ""
        except ConfigError as error:
            return None, f" The store's cannot be used: {error}"
        return None, ""

    def _given(self, reference: ModelReference, refused: str = "") -> Path:
        """Return the folder that the user named, a download of it from the Hub, or one made again.

        Raises UnavailableError.
        """
        if adapter_folders.exists(Path(reference.path)):
            return Path(reference.path)
        if (folder := make_again(Path(reference.path))) is not None:
            return folder
        if reference.hub_id is not None:
            return Path(resolve(f"{reference.hub_id}@{reference.revision}").path)
        if self._home is not None:
            from weights.storage import made_again

            if (place := made_again.model(self._home, reference)) is not None:
                return place
        raise UnavailableError(
            f"model {reference.name} is not on this machine: there is no {reference.path}. Put it there, or "
            f"name a store that has it in FORGE_ARTIFACT_STORE.{refused}"
        )

    def share_model(self, place: Path) -> None:
        """Put a copy into the store, under its content address."""
        files = {p.name: p for p in place.iterdir() if p.name != ORIGIN}
        self.put(stored(place.name), files)

    def items_again(self, file: Path) -> bool:
        """Make a file of items again that another run pinned among this machine's inputs.

        Returns False if it was none, or if no run of the log pinned it.
        """
        if self._home is None or file.parent.parent != self.folder:
            return False
        from weights.storage import made_again

        return made_again.items(self._home, self._cache, file.parent.name) == file

    @property
    def _home(self) -> Home | None:
        return None if self._cache is None else self._cache.home

    @property
    def shares(self) -> bool:
        """Return True if there is a store to share with."""
        return self._vault is not None

    def put(self, name: str, files: dict[str, Path]) -> None:
        """Put files into the store, if there is one; a failure is only logged.

        Sharing helps other machines: this run does not need it.
        """
        if self._vault is None:
            return
        try:
            self._vault.put(name, files)
        except (ForgeError, OSError) as error:
            log.warning("not shared with other machines: %s", error)

    def fetch(self, name: str, place: Path, needed: str) -> bool:
        """Download an artifact if it has a file named `needed`; return False if the store has none.

        A damaged artifact is removed from the store. Raises ConfigError if this machine's keys do
        not fit the artifact.
        """
        if self._vault is None:
            return False
        try:
            return needed in self._vault.files(name) and self._vault.fetch(name, place)
        except TamperedError as error:
            log.warning("%s It is removed.", error)
            self._vault.remove(name)
            return False
