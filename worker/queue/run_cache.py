"""The dispatcher's cache of runs: their folded states and open tasks, which the log can restore."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection

from events import Context, EventStore
from evomerge.run.decide import Task, decide
from evomerge.run.repository import news
from evomerge.run.state import RunState, absorb
from worker.append import PROJECTED, append_facts, project
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
        self.states: OrderedDict[str, RunState] = OrderedDict()
        self.tasks: dict[str, list[Task]] = {}
        self.homes = Homes()
        #: Run → task → how often the task came back, and when it may be granted again.
        self._backoff: dict[str, dict[str, Backoff]] = {}

    def bring(self, run: str) -> RunState:
        """Fold a run's new events, append the facts that follow, and note its tasks.

        Return the state. Raises the errors of reading, folding and deciding.
        """
        state = self.states.get(run) or RunState()
        self.states[run] = state
        self.states.move_to_end(run)
        while True:
            rows = news(self._store, run, state)
            absorb(state, rows)
            self.homes.follow(run, rows)
            if any(row.type in PROJECTED for row in rows):
                project(self._store)
            decision = decide(state)
            if state.ended or not decision.facts:
                break
            append_facts(self._store, state, decision.facts, self._context)
        self.tasks[run] = decision.tasks
        due = {task.key for task in decision.tasks}
        waits = self._backoff.get(run, {})
        self._backoff[run] = {task: one for task, one in waits.items() if task in due}
        return state

    def drop(self, run: str) -> None:
        """Forget the state and tasks of a run, but keep its backoffs and the devices that built."""
        self.states.pop(run, None)
        self.tasks.pop(run, None)

    def forget(self, run: str) -> None:
        """Forget everything of a run that has ended."""
        self.drop(run)
        self.homes.forget(run)
        self._backoff.pop(run, None)

    def unload(self, busy: Collection[str]) -> list[str]:
        """Drop the longest unused runs until at most `LOADED` are kept, those in `busy` last.

        Return the dropped runs.
        """
        dropped = []
        while len(self.states) > LOADED:
            run = next((run for run in self.states if run not in busy), next(iter(self.states)))
            self.drop(run)
            dropped.append(run)
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
