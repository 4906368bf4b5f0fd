"""Who works on which task of a run now, by the tables of devices and leases. Not truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Hand:
    """A device or process that works on a task of the run."""

    who: str
    task: str
    seconds: float | None = None


def at_work(run: str, roster: Any, leases: Any) -> list[Hand]:
    """Return who works on the run now: devices first, then processes that carry the run themselves."""
    found = {
        f"{run}/{d.task}": Hand(d.name, d.task, d.seconds)
        for d in roster.devices()
        if d.living and d.run == run and d.task
    }
    for task, owner in sorted(leases.held().items()):
        if task.startswith(f"{run}/") and task not in found:
            place, pid, *_ = owner.split("/")
            who = f"{place.partition(':')[0]}, process {pid}"
            found[task] = Hand(who, task.removeprefix(f"{run}/"))
    return list(found.values())


class AtWork:
    """Finds the devices and processes that work on a run's tasks now."""

    def __init__(self, store: Any, run: str) -> None:
        from worker.queue.device_table import Roster
        from worker.queue.leases import Leases

        self._run = run
        self._roster, self._leases = Roster(store.database), Leases(store.database)

    def __call__(self) -> list[Hand]:
        """Return what the tables say now."""
        return at_work(self._run, self._roster, self._leases)
