"""Devices and processes that work on a run's tasks now, by the tables of devices and leases."""

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
    """Return the hands at work on the run: devices first, then processes that carry it themselves."""
    hands = {
        f"{run}/{d.task}": Hand(d.name, d.task, d.seconds)
        for d in roster.devices()
        if d.living and d.run == run and d.task
    }
    for task, owner in sorted(leases.held().items()):
        if task.startswith(f"{run}/") and task not in hands:
            place, pid, *_ = owner.split("/")
            who = f"{place.partition(':')[0]}, process {pid}"
            hands[task] = Hand(who, task.removeprefix(f"{run}/"))
    return list(hands.values())


class AtWork:
    """A callable that finds the devices and processes that work on a run's tasks now."""

    def __init__(self, store: Any, run: str) -> None:
        from worker.queue.device_table import Roster
        from worker.queue.leases import Leases

        self._run = run
        self._roster, self._leases = Roster(store.database), Leases(store.database)

    def __call__(self) -> list[Hand]:
        """Return the hands at work on the run, as the tables say now."""
        return at_work(self._run, self._roster, self._leases)
