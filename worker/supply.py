"""Models and data that a run needs and this machine lacks: from the shared store, or from the Hub.

A worker that has them puts them into the store when the run is started, named by the digests that
`started` records; whoever fetches them checks the digests before any use, as for files of its own.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from evomerge import checkpoints
from evomerge.corpus import domains
from evomerge.errors import ForgeError, TamperedError, UnavailableError
from evomerge.facts import ModelReference
from evomerge.fitness import data
from evomerge.fitness.data import Item
from evomerge.harness import specs
from evomerge.sources import resolve

if TYPE_CHECKING:
    from worker.vault import Vault

log = logging.getLogger(__name__)

ITEMS = "items.jsonl"
#: Ends of the names of files that a model consists of.
PARTS = (".safetensors", ".json", ".jinja", ".model", ".txt")


def _write(folder: Path, items: list[Item]) -> None:
    lines = "".join(item.model_dump_json() + "\n" for item in items)
    (folder / ITEMS).write_text(lines, "utf-8")


class Supply:
    """What the store can give, and what is put into it."""

    def __init__(self, folder: Path, vault: Vault | None) -> None:
        self._folder = folder
        self._vault = vault

    def model(self, given: ModelReference, digest: str | None) -> ModelReference:
        """The model's folder on this machine; `digest` where it is known by one.

        Raises UnavailableError where it is not here: another machine may have it.
        """
        if Path(given.path).exists():
            return given
        if digest is not None:
            place = self._folder / digest
            if place.is_dir() or self._fetch(digest, place):
                return given.model_copy(update={"path": str(place)})
        if given.hub_id is not None:
            found = resolve(f"{given.hub_id}@{given.revision}")
            return given.model_copy(update={"path": found.path})
        raise UnavailableError(
            f"model {given.name} is not on this machine: there is no {given.path}. Put it there, or "
            "name a store that has it in FORGE_ARTIFACT_STORE."
        )

    def items(self, paths: tuple[str, ...], digest: str | None) -> list[Item] | None:
        """The run's items as they were pinned, where its files are not here or tasks are among what
        was given; None where they are to be read.

        Raises UnavailableError where the store lacks them too.
        """
        tasks = list(filter(specs.is_task, paths))
        missing = [p for p in paths if p not in (domains.NAME, *tasks) and not Path(p).exists()]
        if digest is not None and (missing or tasks):
            place = self._folder / digest
            if place.is_dir() or self._fetch(digest, place):
                return data.load([place / ITEMS], ours=True)
        if not missing:
            return None
        raise UnavailableError(
            f"the data is not on this machine: there is no {missing[0]}. Put it there, or name a store "
            "that has it in FORGE_ARTIFACT_STORE."
        )

    def share_model(self, given: ModelReference, digest: str) -> None:
        """Put a model into the store."""
        found = {p.name: p for p in Path(given.path).iterdir() if p.suffix in PARTS and p.is_file()}
        self._put(digest, found)

    def keep_items(self, paths: tuple[str, ...], items: list[Item], digest: str) -> None:
        """Put the items into the store, all in one file; where tasks are among what was given, here as
        well: reading those again would take long and might give others.
        """
        try:
            if any(map(specs.is_task, paths)) and not (self._folder / digest).is_dir():
                checkpoints.publish(self._folder / digest, lambda place: _write(place, items))
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

    def _fetch(self, name: str, place: Path) -> bool:
        if self._vault is None:
            return False
        try:
            return self._vault.fetch(name, place)
        except TamperedError as error:
            log.warning("%s It is removed.", error)
            self._vault.remove(name)
            return False
