"""The loop that carries out a run: fold, decide, append facts or do a task.

The loop keeps no state but caches. Any number of processes may carry out one run at once, and each may
be killed at any point.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_forge.events import Cause, Envelope, EventStore, failpoints
from agent_forge.runs.errors import ConfigError, RunCancelledError, RunFailedError
from agent_forge.runs.history.run_cache import RunCache
from agent_forge.runs.home import threads
from agent_forge.runs.kinds.decide import Delegate, Task, decide
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import queries
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.append import actor, append_facts, project_after
from agent_forge.worker.commands import delegation
from agent_forge.worker.queue.leases import Leases
from agent_forge.worker.tasks.recorder import TaskExecutor

log = logging.getLogger(__name__)

#: Seconds between looks at the log while other processes hold every task.
POLL = 0.05
#: Seconds between looks at the log of a paused run.
PAUSED_POLL = 0.5


Watcher = Callable[[Any, list[Envelope]], None]


@dataclass
class WorkerProcess:
    """A process that carries out runs."""

    store: EventStore
    artifacts: Artifacts
    watch: Watcher = lambda state, rows: None
    #: Called between tasks; True stops the run here.
    stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        threads()  # a FORGE_THREADS that cannot be used is said before any work
        self._leases = Leases(self.store.database)
        self._context = Cause(actor=actor())
        self._runs = RunCache(self.store)
        self._hands = TaskExecutor(self.store, self.artifacts, self._context, self._refresh)

    def run(self, run: str) -> Any:
        """Carry out the run until it has ended or `stop()` is True; return its state.

        Raises errors that are not the fault of a task.
        """
        while True:
            state = self._refresh(run)
            decision = decide(state)
            if decision.facts:
                append_facts(self.store, state, decision.facts, self._context)
            elif state.ended or self.stop():
                if state.ended:
                    self._leases.forget(run)
                return state
            elif not self._work_on(state, decision.tasks):
                time.sleep(PAUSED_POLL if state.paused else POLL)

    def _refresh(self, run: str) -> State:
        """Fold the new events, call the watcher, write what a restart needs; return the state."""
        state, rows = self._runs.refresh(run)
        self._hands.keep(state, rows)
        project_after(self.store, rows)
        if rows:
            self.watch(state, rows)
        return state

    def _work_on(self, state: State, tasks: Sequence[Task]) -> bool:
        """Do the first task that no other process holds; return True, or False if all are taken.

        Tasks that share its work are done with it.
        """
        for task in tasks:
            if isinstance(task, Delegate):
                self._delegated(state, task)
                return True
            if self._claim(state, task):
                self._do_held(state, task, tasks)
                failpoints.hit("task-released")
                return True
        return False

    def _delegated(self, state: State, task: Delegate) -> None:
        """Submit a task's run, or carry it out, or record its end."""
        if not delegation.exists(self.store, task):
            delegation.submit(self.store, self.artifacts, state, task, self._context)
            failpoints.hit("child-submitted")
        elif not delegation.settle(self.store, state, task, self._context):
            self._carry(task.run)
            failpoints.hit("child-ended")

    def _carry(self, child: str) -> None:
        """Carry out a child. Raises errors that are the fault of neither the child nor a task of it."""
        try:
            self.run(child)
        except ConfigError:
            if not self._refresh(child).ended:
                raise  # it can go on, another time or elsewhere
        finally:
            self._hands.release(child)  # what comes next needs the memory

    def _claim(self, state: State, task: Task) -> bool:
        return self._leases.claim(f"{state.run}/{task.key}") is not None

    def _do_held(self, state: State, task: Task, tasks: Sequence[Task]) -> None:
        """Claim the tasks that share a claimed task's work, do all in turn, release the claims."""
        held = [task]
        try:
            if self.store.version(state.stream) != state.version:
                return
            with self._leases.heartbeat(f"{state.run}/{task.key}"):
                for other in self._hands.share(state, task, tasks)[1:]:
                    if self._claim(state, other):
                        held.append(other)  # at once: a claim that fails must release those before
            with self._leases.heartbeat(*(f"{state.run}/{shared_task.key}" for shared_task in held)):
                if len(held) > 1:
                    self._hands.prepare(state, held)
                for held_task in held:
                    if held_task is not task:
                        state = self._refresh(state.run)
                        still_open = {open_.key for open_ in decide(state).tasks}
                        if self.stop() or held_task.key not in still_open:
                            break
                    if self._hands.do(state, held_task) == "failed":
                        break  # `decide` says what is tried next
        finally:
            for held_task in held:
                self._leases.release(f"{state.run}/{held_task.key}")


def finish(worker: WorkerProcess, run: str) -> Any:
    """Carry out the run to its end; return its state. Raises RunFailedError, RunCancelledError."""
    state = worker.run(run)
    name = queries.name(worker.store, run)
    if state.failed is not None:
        sentence = f"run {name} failed: {state.failed.reason.removesuffix('.')}."
        if "`forge " not in sentence:  # else it says itself what can be done
            sentence += f" Try again with `forge retry {name}` and `forge start --resume {name}`."
        raise RunFailedError(sentence)
    if state.cancelled is not None:
        why = f": {state.cancelled.reason}" if state.cancelled.reason else ""
        raise RunCancelledError(f"run {name} was cancelled{why}. `forge fork` can branch it.")
    return state
