"""The dispatcher's runs: their folded states and open tasks, which the log can restore."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from events import Context, EventStore
from runs.history.run_cache import RunCache
from runs.kinds.decide import decide
from runs.kinds.tasks import Delegate, Task
from worker.append import append_facts, project_after
from worker.commands import delegation
from worker.queue.bookkeeping import Backoff
from worker.queue.build_locality import Homes

#: Number of runs whose folded states are kept.
LOADED = 256
#: Seconds until a task that came back undone is granted again: the first time, and at most.
BACKOFF, BACKOFF_MOST = 0.1, 60.0


class Desk:
    """The states and tasks of the runs that were used last."""

    def __init__(self, store: EventStore, context: Context) -> None:
        self._store = store
        self._context = context
        self._runs = RunCache(store, LOADED)
        self.tasks: dict[str, Sequence[Task]] = {}
        self.homes = Homes()
        #: Run that is a task of another → that other run.
        self.parents: dict[str, str] = {}
        #: Run → task → how often the task came back, and when it may be granted again.
        self._backoff: dict[str, dict[str, Backoff]] = {}

    def __contains__(self, run: str) -> bool:
        """Return True if the run's state is kept."""
        return run in self._runs

    def state(self, run: str) -> Any:
        """Return the run's state as it was last brought up to date; None if it is not kept."""
        return self._runs.known(run)

    def bring(self, run: str) -> Any:
        """Fold a run's new events, append the facts that follow, and note its tasks.

        Return the state. Raises the errors of reading, folding and deciding.
        """
        while True:
            state, rows = self._runs.refresh(run)
            self.homes.follow(run, rows)
            project_after(self._store, rows)
            decision = decide(state)
            if decision.facts and not state.ended:
                append_facts(self._store, state, decision.facts, self._context)
            elif not any(self._settled(state, task) for task in decision.tasks):
                break
        self.tasks[run] = [task for task in decision.tasks if not self._has_child(run, task)]
        due = {task.key for task in decision.tasks}
        waits = self._backoff.get(run, {})
        self._backoff[run] = {task: wait for task, wait in waits.items() if task in due}
        return state

    def _settled(self, state: Any, task: Task) -> bool:
        """Return True if the end of a task's run was recorded."""
        if not isinstance(task, Delegate) or not delegation.exists(self._store, task):
            return False
        return delegation.settle(self._store, state, task, self._context)

    def _has_child(self, run: str, task: Task) -> bool:
        """Return True if a task is a run that is submitted already: no device is needed for it."""
        if not isinstance(task, Delegate) or not delegation.exists(self._store, task):
            return False
        self.parents[task.run] = run
        return True

    def drop(self, run: str) -> None:
        """Forget the state and tasks of a run, but keep its backoffs and the devices that built."""
        self._runs.forget(run)
        self.tasks.pop(run, None)

    def forget(self, run: str) -> None:
        """Forget everything of a run that has ended."""
        self.drop(run)
        self.parents.pop(run, None)
        self.homes.forget(run)
        self._backoff.pop(run, None)

    def unload(self, busy: Collection[str]) -> list[str]:
        """Drop the longest unused runs until at most `LOADED` are kept, those in `busy` last.

        Return the dropped runs.
        """
        dropped = self._runs.shrink(busy)
        for run in dropped:
            self.drop(run)
        return dropped

    def came_back(self, run: str, task: str) -> None:
        """Note that a device is done with a task: a task still due waits, longer each time."""
        backoff = self._backoff.setdefault(run, {}).setdefault(task, Backoff())
        backoff.count += 1
        wait = min(BACKOFF * 4 ** min(backoff.count - 1, 10), BACKOFF_MOST)
        backoff.until = time.monotonic() + wait

    def ready(self, run: str) -> list[Task]:
        """Return the tasks of a run whose backoff is over."""
        now, waits = time.monotonic(), self._backoff.get(run, {})
        tasks = self.tasks.get(run, [])
        return [t for t in tasks if t.key not in waits or waits[t.key].until <= now]
