"""Items that a run pinned, where the files they were read from are missing or may change.

The worker that starts the run keeps the items. A worker that fetches them checks, before any use,
the digest that `started` records, as it does for files of its own.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evaluation.data import domains
from evaluation.data import items as data_items
from evaluation.data.items import Item
from evaluation.data.slices import SLICES, Slice
from evaluation.lm_eval import spec
from runs.errors import DataError, ForgeError, UnavailableError
from runs.system.digests import checked
from weights.folders import checkpoint
from weights.storage.inputs import Supply

log = logging.getLogger(__name__)

ITEMS = "items.jsonl"


def _write(folder: Path, items: list[Item]) -> None:
    lines = "".join(item.model_dump_json() + "\n" for item in items)
    (folder / ITEMS).write_text(lines, "utf-8")


def pinned(
    supply: Supply, paths: tuple[str, ...], digest: str | None, needed: Sequence[Slice] = SLICES
) -> list[Item] | None:
    """Return the run's pinned items, or None if the caller is to read them from `paths`.

    Pinned items are needed if a file of `paths` is missing here, or if `paths` has tasks. They
    come from this machine's folder or from the store; each slice of `needed` has text. A file that
    another run of this home had pinned is made again by that run. Raises UnavailableError if a file
    is missing otherwise.
    """
    tasks = list(filter(spec.is_task, paths))
    missing = [p for p in paths if p not in (domains.NAME, *tasks) and not Path(p).exists()]
    if digest is not None and (missing or tasks):
        place = supply.folder / checked(digest)
        if (place / ITEMS).is_file() or supply.fetch(digest, place, ITEMS):
            return data_items.load([place / ITEMS], from_program=True, needed=needed)
    missing = [path for path in missing if not supply.items_again(Path(path))]
    if not missing:
        return None
    raise UnavailableError(
        f"the data is not on this machine: there is no {missing[0]}. Put it there, or name a store "
        "that has it in FORGE_ARTIFACT_STORE."
    )


def check_unchanged(items: list[Item], digest: str) -> None:
    """Raise DataError unless items have the digest that `started` records."""
    if data_items.digest(items) != digest:
        raise DataError(
            "the data has changed since the run started. Put the old files back, or start a new run."
        )


def keep(supply: Supply, paths: tuple[str, ...], items: list[Item], digest: str) -> None:
    """Put the items into the store, all in one file.

    If `paths` has tasks, keep the items on this machine as well: reading the tasks again would
    take long and might give other items.
    """
    try:
        if any(map(spec.is_task, paths)) and not (supply.folder / checked(digest)).is_dir():
            checkpoint.publish(supply.folder / checked(digest), lambda place: _write(place, items))
    except (ForgeError, OSError) as error:
        log.warning("the items are not kept: %s", error)
    if not supply.shares:
        return
    try:
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder), items)
            supply.put(digest, {ITEMS: Path(folder) / ITEMS})
    except OSError as error:
        log.warning("not shared with other machines: %s", error)
