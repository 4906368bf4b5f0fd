"""Models and data of a run that this machine lacks, from the shared store or from the Hub.

The worker that starts the run puts its inputs into the store. A worker that fetches them checks,
before any use, the digests that `started` records, as it does for files of its own.

    model-ADDRESS   a whole model, by its content address (`worker/storage/model_copies.py`)
    DIGEST          items of a run with that digest; or bare weights (`worker/storage/weight_cache.py`)
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.data import domains
from evaluation.data import items as data_items
from evaluation.data.items import Item
from evaluation.lm_eval import spec
from runs.errors import (
    ConfigError,
    ForgeError,
    SourceChangedError,
    SourceError,
    TamperedError,
    UnavailableError,
)
from runs.event_types import ModelReference, SourceRecord
from runs.system.digests import checked
from weights import checkpoint, companions
from weights.sources import resolve
from worker.storage.model_copies import ORIGIN, Copies, written_since

if TYPE_CHECKING:
    from worker.storage.artifact_store import Vault

log = logging.getLogger(__name__)

ITEMS = "items.jsonl"


def stored(address: str) -> str:
    """Return the name in the store of the whole model with this content address."""
    return f"model-{address}"


def _difference(given: ModelReference, pinned: SourceRecord, place: Path) -> str:
    """Return the error text that says which files of a model differ from the pinned ones."""
    found = companions.digests(place)
    changed = [n for n in {**pinned.files, **found} if pinned.files.get(n) != found.get(n)]
    what = f": {', '.join(changed)} differ" if changed else ""
    return (
        f"model {pinned.name} has changed since the run started{what} ({given.path}). Put the old "
        "files back, or start a new run."
    )


def _write(folder: Path, items: list[Item]) -> None:
    lines = "".join(item.model_dump_json() + "\n" for item in items)
    (folder / ITEMS).write_text(lines, "utf-8")


def check_named(given: ModelReference, found: str, place: Path) -> None:
    """Raise SourceError if a model was submitted with a digest and its weights have another now.

    `found` is the digest of the weights as the run reads them, `place` the model's copy.
    """
    if given.digest in (None, found):
        return
    if given.digest != checkpoint.digest(checkpoint.open_checkpoint(place).tensors()):
        raise SourceError(
            f"model {given.name}: the weights in {given.path} have changed since the run was "
            "submitted. Submit it again."
        )


class Supply:
    """A run's inputs on this machine: model copies and items, exchanged with the shared store."""

    def __init__(self, folder: Path, vault: Vault | None) -> None:
        self._folder = folder
        self._vault = vault
        self._copies = Copies(folder.parent / "models")

    def model(self, given: ModelReference, pinned: SourceRecord | None) -> Path:
        """Return this machine's own copy of a model; `pinned` is its record in `started`.

        Raises UnavailableError if the model is not here (another machine may have it),
        SourceChangedError if the model that is here is not the pinned one.
        """
        if pinned is None or not pinned.model:  # no model is pinned, or only its weights are
            return self._copies.take(self._given(given))
        place, refused = self._copies.find(pinned.model, pinned.files), ""
        if place is None:
            place, refused = self._fetched(pinned)
        if place is None:
            place = self._copies.take(self._given(given, refused))
        elif written_since(place, Path(given.path)):
            log.warning(
                "the files of model %s were changed since the run started: %s. The run goes on with "
                "its own copy of the model as it was.", given.name, given.path,
            )  # fmt: skip
        if place.name != pinned.model:
            raise SourceChangedError(_difference(given, pinned, place))
        return place

    def forget(self, place: Path) -> None:
        """Remove a copy whose weights turned out to be damaged."""
        log.warning("the copy %s of a model is damaged: it is made again", place.name[:12])
        self._copies.drop(place)

    def _fetched(self, pinned: SourceRecord) -> tuple[Path | None, str]:
        """Return a copy fetched from the store; or None, and why the store's copy was refused."""
        try:
            if self._fetch(
                stored(pinned.model), self._copies.place(pinned.model), companions.CONFIG
            ):
                return self._copies.find(pinned.model, pinned.files), ""
        except ConfigError as error:
            return None, f" The store's cannot be used: {error}"
        return None, ""

    def _given(self, given: ModelReference, refused: str = "") -> Path:
        """Return the folder that the user named, or a download of it from the Hub.

        Raises UnavailableError.
        """
        if Path(given.path).exists():
            return Path(given.path)
        if given.hub_id is not None:
            return Path(resolve(f"{given.hub_id}@{given.revision}").path)
        raise UnavailableError(
            f"model {given.name} is not on this machine: there is no {given.path}. Put it there, or "
            f"name a store that has it in FORGE_ARTIFACT_STORE.{refused}"
        )

    def items(self, paths: tuple[str, ...], digest: str | None) -> list[Item] | None:
        """Return the run's pinned items, or None if the caller is to read them from `paths`.

        Pinned items are needed if a file of `paths` is missing here, or if `paths` has tasks. They
        come from this machine's folder or from the store. Raises UnavailableError if a file is
        missing and the store lacks the items too.
        """
        tasks = list(filter(spec.is_task, paths))
        missing = [p for p in paths if p not in (domains.NAME, *tasks) and not Path(p).exists()]
        if digest is not None and (missing or tasks):
            place = self._folder / checked(digest)
            if (place / ITEMS).is_file() or self._fetch(digest, place, ITEMS):
                return data_items.load([place / ITEMS], ours=True)
        if not missing:
            return None
        raise UnavailableError(
            f"the data is not on this machine: there is no {missing[0]}. Put it there, or name a store "
            "that has it in FORGE_ARTIFACT_STORE."
        )

    def share_model(self, place: Path) -> None:
        """Put a copy into the store, under its content address."""
        found = {p.name: p for p in place.iterdir() if p.name != ORIGIN}
        self._put(stored(place.name), found)

    def keep_items(self, paths: tuple[str, ...], items: list[Item], digest: str) -> None:
        """Put the items into the store, all in one file.

        If `paths` has tasks, keep the items on this machine as well: reading the tasks again would
        take long and might give other items.
        """
        try:
            if any(map(spec.is_task, paths)) and not (self._folder / checked(digest)).is_dir():
                checkpoint.publish(
                    self._folder / checked(digest), lambda place: _write(place, items)
                )
        except (ForgeError, OSError) as error:
            log.warning("the items are not kept: %s", error)
        if self._vault is None:
            return
        try:
            with tempfile.TemporaryDirectory() as folder:
                _write(Path(folder), items)
                self._put(digest, {ITEMS: Path(folder) / ITEMS})
        except OSError as error:
            log.warning("not shared with other machines: %s", error)

    def _put(self, name: str, files: dict[str, Path]) -> None:
        """Put files into the store, if there is one; a failure is only logged.

        Sharing helps other machines: this run does not need it.
        """
        if self._vault is None:
            return
        try:
            self._vault.put(name, files)
        except (ForgeError, OSError) as error:
            log.warning("not shared with other machines: %s", error)

    def _fetch(self, name: str, place: Path, needed: str) -> bool:
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
