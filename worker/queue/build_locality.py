"""Where candidates were built: measuring one there needs no transfer and no rebuild."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from events import Envelope
from evomerge.run import events
from evomerge.run.decide import Evaluate, Task


class Homes:
    """Device → what it has built, by run. A cache: to forget it costs time and nothing else."""

    def __init__(self) -> None:
        #: Run → recipe id → device.
        self._homes: dict[str, dict[str, str]] = {}

    def follow(self, run: str, rows: Iterable[Envelope]) -> None:
        """Note what was built where: the event's actor is the worker."""
        for row in rows:
            if row.type in events.BUILT:
                event = events.REGISTRY.load(row)
                actor = row.actor.removeprefix("worker/")
                self._homes.setdefault(run, {})[event.recipe_id] = actor  # pyright: ignore

    def forget(self, run: str) -> None:
        """The run has ended."""
        self._homes.pop(run, None)

    def best(self, run: str, tasks: Sequence[Task], device: str) -> Task:
        """Of these tasks the one that fits a device best; there is always one.

        First what was built here, then what has no home, then what another device has built: by then
        that one is busy with something else.
        """
        homes = self._homes.get(run, {})

        def distance(task: Task) -> int:
            home = homes.get(task.recipe_id) if isinstance(task, Evaluate) else None
            return 1 if home is None else 0 if home == device else 2

        return min(tasks, key=distance)
