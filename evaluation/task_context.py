"""A run's inputs in one process, and the work on its tasks: what kinds that measure have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, Self, TypeVar

from evaluation import kept_items
from evaluation.data.items import Item
from evaluation.machine_profile import machine_profile, unsuited
from runs.event_types import Profile
from runs.kinds.state import State
from weights.devices import of_run
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads

S = TypeVar("S", bound=State)


class TaskContext(Generic[S]):
    """The opened inputs of a run whose tasks have no work in common."""

    #: The items that are measured.
    items: list[Item]

    def __init__(self, state: S, cache: Artifacts) -> None:
        self.state = state
        self._cache = cache

    @classmethod
    def opened(cls, state: S, cache: Artifacts) -> Self:
        """Open a started run in this process, with its number of threads, and check it.

        Raises DataError or UnavailableError if other numbers would come out here.
        """
        set_threads(state.started.profile.threads)
        context = cls(state, cache)
        context.check_unchanged()
        return context

    @classmethod
    def to_read(cls, state: S, cache: Artifacts, digests: Iterable[str]) -> Self:
        """Open a run to read models of it by their digests. Raises the errors of `opened`.

        What the cache has needs no training, and so no look at the machine.
        """
        is_cached = all(cache.files(digest) for digest in digests)
        return cls(state, cache) if is_cached else cls.opened(state, cache)

    def check_unchanged(self) -> None:
        """Raise DataError for other items, UnavailableError for another profile."""
        started = self.state.started
        kept_items.check_unchanged(self.items, started.data_digest)
        if other := self.profile().unlike(started.profile):
            raise unsuited(other)

    def profile(self) -> Profile:
        """Return the profile of this process: all facts that can change the last bit of a number."""
        return machine_profile(self.device)

    @property
    def device(self) -> str:
        """The run's device, as this process names it."""
        return of_run(self.state)

    def share(self, task: Any, tasks: Sequence[Any]) -> Sequence[Any]:
        """Return the task alone."""
        return [task]

    def prepare(self, tasks: Sequence[Any]) -> None:
        """Do nothing."""
