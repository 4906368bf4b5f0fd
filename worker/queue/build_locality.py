"""The device that built each candidate: there an evaluation needs no transfer and no rebuild."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from events import Envelope
from runs import kinds
from runs.kinds.kind import Kind
from runs.kinds.tasks import Task


class Homes:
    """The device that built each candidate, by run; a cache whose loss only costs time."""

    def __init__(self) -> None:
        #: Run → recipe id → device.
        self._homes: dict[str, dict[str, str]] = {}

    def follow(self, run: str, rows: Iterable[Envelope]) -> None:
        """Note which device built which candidate: the event's actor is the worker."""
        for row in rows:
            kind = kinds.kind_of(row.stream)
            built = kind.built(row) if kind else None
            if built is not None:
                actor = row.actor.removeprefix("worker/")
                self._homes.setdefault(run, {})[built] = actor

    def forget(self, run: str) -> None:
        """Forget a run that has ended."""
        self._homes.pop(run, None)

    def best(self, kind: Kind, run: str, tasks: Sequence[Task], device: str) -> Task:
        """Return the task that fits a device best; `tasks` must not be empty.

        First come evaluations of candidates that this device built, then tasks without a known
        device, then evaluations of candidates that another device built: by then the other device
        is busy with another task.
        """
        homes = self._homes.get(run)
        if not homes:
            return tasks[0]

        def distance(task: Task) -> int:
            read = kind.needs(task)
            home = None if read is None else homes.get(read)
            return 1 if home is None else 0 if home == device else 2

        return min(tasks, key=distance)
