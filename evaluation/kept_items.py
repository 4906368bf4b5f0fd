"""Kept items: the items that a run pinned, for machines where their files are missing or may change.

The worker that starts the run keeps the items. A worker that fetches them first compares their digest
with the one in `started`, as it does for files of its own. `TaskContext` opens a run's inputs in one
process for all kinds of run that measure. No torch: methods that compute import what they need.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from agent_forge.evaluation.data import bfcl, domains
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.items import Item, Text
from agent_forge.evaluation.data.slices import SLICES, Slice
from agent_forge.evaluation.lm_eval import spec
from agent_forge.evaluation.loading import load_items, texts_of
from agent_forge.runs.errors import DataError, ForgeError, UnavailableError
from agent_forge.runs.event_types import Profile, checked
from agent_forge.runs.kinds.decide import Task
from agent_forge.runs.kinds.state import State
from agent_forge.weights.devices import of_run
from agent_forge.weights.storage.weight_cache import Artifacts

if TYPE_CHECKING:
    from agent_forge.events import Event
    from agent_forge.weights.storage.inputs import Supply

log = logging.getLogger(__name__)

ITEMS = "items.jsonl"


def _write(folder: Path, items: list[Item]) -> None:
    lines = "".join(item.model_dump_json() + "\n" for item in items)
    (folder / ITEMS).write_text(lines, "utf-8")


def pinned(
    supply: Supply, paths: tuple[str, ...], digest: str | None, needed: Sequence[Slice] = SLICES
) -> list[Item] | None:
    """Return the run's pinned items; None if the caller is to read them from `paths`.

    Pinned items are needed if a file of `paths` is missing here, or if `paths` has tasks. They
    come from this machine's folder or from the store; each slice of `needed` has text. A file that
    another run of this home had pinned is made again by that run. Raises UnavailableError if a file
    is missing otherwise.
    """
    tasks = list(filter(spec.is_task, paths))
    missing = [p for p in paths if p not in (domains.NAME, *tasks) and not bfcl.folder(p).exists()]
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
    """Put the items into the store as one file, and with tasks in `paths` also on this machine.

    Reading the tasks again would take long and might give other items.
    """
    from agent_forge.weights.folders import checkpoint

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


S = TypeVar("S", bound=State)


class TaskContext(Generic[S]):
    """The opened inputs of a run whose tasks have no work in common."""

    #: Slices of the items that must have text.
    needed: Sequence[Slice] = SLICES

    def __init__(self, state: S, cache: Artifacts) -> None:
        self.state = state
        self._cache = cache

    @classmethod
    def opened(cls, state: S, cache: Artifacts) -> Self:
        """Return a checked context of a started run, with the run's number of threads in this process.

        Raises DataError or UnavailableError if other numbers would come out here.
        """
        from agent_forge.weights.threads import set_threads

        set_threads(state.started.profile.threads)
        context = cls(state, cache)
        context.check_unchanged()
        return context

    @classmethod
    def to_read(cls, state: S, cache: Artifacts, digests: Iterable[str]) -> Self:
        """Return a context to read models by their digests. Raises the errors of `opened`.

        The machine is not checked if the cache has all models: nothing is trained then.
        """
        is_cached = all(cache.files(digest) for digest in digests)
        return cls(state, cache) if is_cached else cls.opened(state, cache)

    def started(self) -> Event:
        """Return the event that pins the run's inputs."""
        raise NotImplementedError

    @property
    def largest(self) -> int:
        """Parameters of the largest model: built-in items are as many as it can afford."""
        raise NotImplementedError

    @cached_property
    def items(self) -> list[Item]:
        """All items of the data: the pinned ones if they are kept, else read from the files."""
        data, started = self.state.submitted.data, self.state.started
        digest = started.data_digest if started else None
        items = pinned(self._cache.supply, data, digest, self.needed)
        return load_items(data, parameters=self.largest, needed=self.needed) if items is None else items

    def texts(self, on: Slice) -> dict[str, list[Text]]:
        """Return domain → list of the Text items of the slice `on`."""
        return texts_of(self.items, on)

    def keep_items(self) -> str:
        """Keep the items for other machines; return their digest."""
        digest = data_items.digest(self.items)
        keep(self._cache.supply, self.state.submitted.data, self.items, digest)
        return digest

    def check_unchanged(self) -> None:
        """Raise DataError for other items, UnavailableError for another profile."""
        from agent_forge.evaluation.autotune import unsuited

        started = self.state.started
        check_unchanged(self.items, started.data_digest)
        if other := self.profile().unlike(started.profile):
            raise unsuited(other)

    def profile(self) -> Profile:
        """Return the Profile of this process: all facts that can change the last bit of a number."""
        from agent_forge.evaluation.autotune import machine_profile

        return machine_profile(self.device)

    @property
    def device(self) -> str:
        """The run's device, as this process names it."""
        return of_run(self.state)

    def share(self, task: Task, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return [task]: no other task shares its work."""
        return [task]

    def prepare(self, tasks: Sequence[object]) -> None:
        """Do nothing: these tasks have nothing to prepare."""
