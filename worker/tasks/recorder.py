"""Execution of one task of a run in this process, with its result recorded; for runner and devices."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Literal

from agent_forge.events import (
    Appended,
    Cause,
    ConcurrencyError,
    Envelope,
    Event,
    EventsError,
    EventStore,
    New,
    failpoints,
)
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, ForgeError, UnavailableError
from agent_forge.runs.kinds import kind as runs_kind
from agent_forge.runs.kinds.decide import (
    Delegate,
    Start,
    Task,
    TaskPart,
    failure,
    open_tasks,
    part_key,
    whole,
    whole_key,
)
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record.events import (
    Cancelled,
    Completed,
    DivergenceDetected,
    Failed,
    MemoryPeaked,
    PartDone,
    TaskFailed,
)
from agent_forge.runs.system import pace, process_limits
from agent_forge.runs.system.plain_text import visible
from agent_forge.weights import pieces
from agent_forge.weights.devices import out_of_memory
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import delegation, leftovers
from agent_forge.worker.tasks.pieces import PartEnded, TaskPieces

log = logging.getLogger(__name__)

#: Bytes beyond the first ones from which memory is noted; growth from which it is noted again.
NOTED, GROWTH = 1 << 29, 1.05

#: End of a task: recorded, recorded earlier by another process, not needed any more, failed.
Ended = Literal["done", "known", "late", "failed"]


class TaskExecutor:
    """The run contexts of a process, and the methods that do tasks and record results."""

    def __init__(
        self,
        store: EventStore,
        artifacts: Artifacts,
        context: Cause,
        refresh: Callable[[str], object],
        warm: int = 1,
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._context = context
        #: Folds the new events of a run into its state.
        self._refresh = refresh
        #: Number of runs whose sources and model are kept; the longest unused run is dropped.
        self._warm = warm
        self._contexts: dict[str, runs_kind.Context] = {}
        self._before = process_limits.memory()
        #: About the last task: candidate, position of its event, seconds of the append, tokens.
        self.last: dict[str, object] = {}

    def do(self, state: State, task: Task, owns_task: Callable[[], bool] = lambda: True) -> Ended:
        """Do the task and record its result; return "done", "known", "late" or "failed".

        Raises errors that are not the task's fault. A failure is recorded only if `owns_task()`: the
        failure of a process that lost its lease meanwhile does not count.
        """
        if isinstance(task, Delegate):
            delegation.submit(self._store, self._artifacts, state, task, self._context)
            failpoints.hit("child-submitted")
            return "done"
        began = time.monotonic()
        try:
            with process_limits.peak_memory() as peak:
                event = self._carried_out(state, task)
            if time.monotonic() - began > process_limits.LONG:
                process_limits.give_back()
        except OSError as error:
            raise UnavailableError(f"task {task.key} could not be done here: {error}") from error
        except (UnavailableError, ConfigError) as error:
            if isinstance(whole(task), Start) and isinstance(error, ConfigError):
                self._fail(state, error)
            raise  # not the task's fault: the run stays as it is and can be resumed
        except Exception as error:
            if out_of_memory(error):
                raise
            log.debug("task %s failed", task.key, exc_info=error)
            self.last = {"why": f"{type(error).__name__}: {error}"}
            if owns_task():
                self._record_failure(state, task, error)
            return "failed"
        failpoints.hit("task-done")
        began = time.monotonic()
        done = self._record(state, task, event)
        failpoints.hit("task-appended")
        self.last = {
            "candidate": getattr(event, "recipe_id", None),
            "position": done.rows[0].position if done else None,
            "append": time.monotonic() - began,
            "tokens": kinds.of(state.kind).view.tokens(event),
        }
        if isinstance(task, Start) and not (done and done.fresh):
            self._contexts.pop(state.run, None)  # the run goes on with another process's `started`
        if done is None:
            return "late"
        self._note_memory(state, task, peak[0])
        if not done.fresh:
            self._compare(state, task, event, done.rows[0])
        return "done" if done.fresh else "known"

    def _carried_out(self, state: State, task: Task) -> Event:
        """Return the answer to a task, or a part that was done here. Raises the errors of the work."""
        context = self.context(state, task)
        try:
            with pieces.offered(TaskPieces(self._artifacts, state, task)):
                event = context.carry_out(whole(task))
        except PartEnded as ended:
            return ended.event
        finally:
            pace.forget()
        if isinstance(task, TaskPart):
            raise RuntimeError(f"task {task.whole.key} has no piece {task.begin}")
        return event

    def share(self, state: State, task: Task, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return the open tasks, `task` first, that this process should do together."""
        if isinstance(task, Start | TaskPart):
            return [task]
        try:
            return self.context(state, task).share(task, tasks)
        except Exception as error:
            log.debug("task %s is done alone", task.key, exc_info=error)
            return [task]  # `do` meets the error again, and says whose fault it is

    def prepare(self, state: State, tasks: Sequence[Task]) -> None:
        """Do the work that these tasks share."""
        self.context(state, tasks[0]).prepare(tasks)

    def context(self, state: State, task: Task) -> runs_kind.Context:
        """Return the run's context; open and check a new one if none is kept for this state."""
        context = self._contexts.pop(state.run, None)
        if context is None or context.state is not state:
            while len(self._contexts) >= self._warm:
                self._contexts.pop(next(iter(self._contexts)))
            context = kinds.of(state.kind).context(state, self._artifacts)
            if not isinstance(whole(task), Start):
                context.check_unchanged()
        self._contexts[state.run] = context
        return context

    def release(self, run: str | None = None) -> None:
        """Drop a run's context (None: all) and all weights in memory; tasks get them again."""
        for run_name in [run] if run else list(self._contexts):
            self._contexts.pop(run_name, None)
        self._artifacts.release()

    def _record(self, state: State, task: Task, event: Event) -> Appended | None:
        """Append the result; return the store's Appended, or None if the run does not need it any more.

        The append is at the version at which the task was still open. Other processes may append
        meanwhile: then refresh the state, and try again if the task is still open.
        """
        key = part_key(event.task, event.begin) if isinstance(event, PartDone) else task.key
        new = [New(event, f"{state.run}/{key}")]
        while True:
            try:
                return self._store.append(state.stream, state.version, new, self._context)
            except ConcurrencyError:
                self._refresh(state.run)
                if task.key not in {open_.key for open_ in open_tasks(state)}:
                    return None

    def _note_memory(self, state: State, task: Task, peak: int) -> None:
        """Append a `MemoryPeaked` event if the process took much, and more than any before it did."""
        if peak < max(self._before + NOTED, GROWTH * state.peak_bytes):
            return
        event = MemoryPeaked(task=whole_key(task.key), bytes=peak)
        new = New(event, f"{state.run}/{event.task}/memory/{peak}")
        self._store.append(state.stream, None, [new], self._context)

    def _record_failure(self, state: State, task: Task, error: Exception) -> None:
        """Append a `TaskFailed` event with the number of the attempt; after three the run fails."""
        name = whole_key(task.key)
        before = state.failures.get(name)
        attempt = before.attempt + 1 if before else 1
        what = visible(f"{type(error).__name__}: {error}")
        event = TaskFailed(task=name, attempt=attempt, error=what)
        key = f"{state.run}/{name}/failed/{attempt}"
        self._store.append(state.stream, None, [New(event, key)], self._context)

    def _fail(self, state: State, error: Exception) -> None:
        new = failure(state, visible(str(error)))
        try:
            self._store.append(state.stream, state.version, [new], self._context)
        except ConcurrencyError:
            return  # another process started it, or it was cancelled meanwhile

    def _compare(self, state: State, task: Task, event: Event, row: Envelope) -> None:
        """Append a `DivergenceDetected` if a result differs from the recorded one.

        Another process had done the task already. A difference means that the profile is broken.
        """
        kind = kinds.of(state.kind)
        recorded = state.registry.load(row)
        if isinstance(recorded, PartDone) and isinstance(event, PartDone) and recorded.end != event.end:
            return  # both began alike, and the paces of two devices differ
        if kind.verification.agrees(state, recorded, event):
            return
        differs = DivergenceDetected(
            task=task.key,
            recorded=kind.verification.fingerprint(recorded),
            found=kind.verification.fingerprint(event),
        )
        key = f"{state.run}/{task.key}/divergence/{uuid.uuid4().hex}"
        self._store.append(state.stream, None, [New(differs, key)], self._context)

    def keep(self, state: State, rows: Sequence[Envelope]) -> None:
        """Write what a restart would need most to disk, if new events closed a unit of the run.

        If the run has ended, remove what no restart needs any more.
        """
        kind = kinds.of(state.kind)
        if any(row.type in kind.listed for row in rows):
            kind.storage.keep(state, self._artifacts)
        types = {row.type for row in rows}
        if types & {Cancelled.type, Failed.type}:
            leftovers.sweep(self._store, self._artifacts.folder)
        if types & {Cancelled.type, Completed.type}:
            self._unshare(state)

    def _unshare(self, state: State) -> None:
        """Remove an ended run's snapshots from the shared store; a failure is only logged."""
        try:
            leftovers.unshare(self._store, state, self._artifacts.vault)
        except (ForgeError, EventsError) as error:
            log.warning("snapshots may stay in the shared store: %s", error)
