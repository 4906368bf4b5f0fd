"""Models and data that a run needs and this machine lacks: from the shared store, or from the Hub.

A worker that has them puts them into the store when the run is started; whoever fetches them checks
the digests that `started` records before any use, as for files of its own.

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
    """Say what of a model is not as it was when the run started."""
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
    """Raise SourceError if a model was named by its weights and they are others now.

    `found` is the digest of its weights as the run reads them, `place` its copy.
    """
    if given.digest in (None, found):
        return
    if given.digest != checkpoint.digest(checkpoint.open_checkpoint(place).tensors()):
        raise SourceError(
            f"model {given.name}: the weights in {given.path} have changed since the run was "
            "submitted. Submit it again."
        )


class Supply:
    """What the store can give, and what is put into it."""

    def __init__(self, folder: Path, vault: Vault | None) -> None:
        self._folder = folder
        self._vault = vault
        self._copies = Copies(folder.parent / "models")

    def model(self, given: ModelReference, pinned: SourceRecord | None) -> Path:
        """Return this machine's own copy of a model; `pinned` is what `started` recorded of it.

        Raises UnavailableError if the model is not here (another machine may have it),
        SourceChangedError if what is here is not the pinned model.
        """
        if pinned is None or not pinned.model:  # nothing is pinned, or its weights are all that is
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
        """Return the copy that the store has, or None and why the store's was refused."""
        try:
            if self._fetch(
                stored(pinned.model), self._copies.place(pinned.model), companions.CONFIG
            ):
                return self._copies.find(pinned.model, pinned.files), ""
        except ConfigError as error:
            return None, f" The store's cannot be used: {error}"
        return None, ""

    def _given(self, given: ModelReference, refused: str = "") -> Path:
        """Return the folder that the user named, or the Hub's copy of it."""
        if Path(given.path).exists():
            return Path(given.path)
        if given.hub_id is not None:
            return Path(resolve(f"{given.hub_id}@{given.revision}").path)
        raise UnavailableError(
            f"model {given.name} is not on this machine: there is no {given.path}. Put it there, or "
            f"name a store that has it in FORGE_ARTIFACT_STORE.{refused}"
        )

    def items(self, paths: tuple[str, ...], digest: str | None) -> list[Item] | None:
        """The run's items as they were pinned, where its files are not here or tasks are among what
        was given; None where they are to be read.

        Raises UnavailableError where the store lacks them too.
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
        """Put the items into the store, all in one file; where tasks are among what was given, here as
        well: reading those again would take long and might give others.
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
        """To share is a favour: a store that cannot take it is no reason to stop."""
        if self._vault is None:
            return
        try:
            self._vault.put(name, files)
        except (ForgeError, OSError) as error:
            log.warning("not shared with other machines: %s", error)

    def _fetch(self, name: str, place: Path, needed: str) -> bool:
        """Download an artifact that has a file of the name `needed`; False where there is none.

        Raises ConfigError where this machine's keys do not fit it.
        """
        if self._vault is None:
            return False
        try:
            return needed in self._vault.files(name) and self._vault.fetch(name, place)
        except TamperedError as error:
            log.warning("%s It is removed.", error)
            self._vault.remove(name)
            return False
