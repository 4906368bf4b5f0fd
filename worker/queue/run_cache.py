"""Runs folded, decided and kept in memory: the dispatcher's desk. A cache; the log has it all."""

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

#: Runs whose states are kept folded.
LOADED = 256
#: Seconds until a task that came back undone is granted again: first, and at the most.
BACKOFF, BACKOFF_MOST = 0.1, 60.0


class Desk:
    """States and tasks of the runs that were worked on last."""

    def __init__(self, store: EventStore, context: Context) -> None:
        self._store = store
        self._context = context
        self.states: OrderedDict[str, RunState] = OrderedDict()
        self.tasks: dict[str, list[Task]] = {}
        self.homes = Homes()
        #: Run → task → when it may be granted again.
        self._backoff: dict[str, dict[str, Backoff]] = {}

    def bring(self, run: str) -> RunState:
        """Fold what is new, append the facts that follow, note the tasks. Raises what is wrong."""
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
        """Keep nothing of a run but what it waits for."""
        self.states.pop(run, None)
        self.tasks.pop(run, None)

    def forget(self, run: str) -> None:
        """The run has ended."""
        self.drop(run)
        self.homes.forget(run)
        self._backoff.pop(run, None)

    def unload(self, busy: Collection[str]) -> list[str]:
        """Keep less in memory; the runs that were dropped, the longest unused first."""
        dropped = []
        while len(self.states) > LOADED:
            run = next((run for run in self.states if run not in busy), next(iter(self.states)))
            self.drop(run)
            dropped.append(run)
        return dropped

    def came_back(self, run: str, task: str) -> None:
        """A device is done with a task: if it is still due, it waits, longer each time."""
        backoff = self._backoff.setdefault(run, {}).setdefault(task, Backoff())
        backoff.count += 1
        wait = min(BACKOFF * 4 ** min(backoff.count - 1, 10), BACKOFF_MOST)
        backoff.until = time.monotonic() + wait

    def ready(self, run: str) -> list[Task]:
        """Tasks of a run that need not wait."""
        now, waits = time.monotonic(), self._backoff.get(run, {})
        tasks = self.tasks.get(run, [])
        return [t for t in tasks if t.key not in waits or waits[t.key].until <= now]
