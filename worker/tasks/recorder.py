"""Do one task of a run in this process and record its result, for the runner and for devices."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import Any, Literal

import torch

from events import Appended, ConcurrencyError, Context, Envelope, Event, EventStore, New, failpoints
from evomerge.run import events
from evomerge.run.decide import Start, Task, open_tasks
from evomerge.run.repository import stream
from evomerge.run.retries import failed_key
from evomerge.run.state import RunState
from evomerge.tasks.context import Bench
from evomerge.tasks.execute import carry_out
from runs.errors import ConfigError, UnavailableError
from runs.system.plain_text import visible
from weights.storage.weight_cache import Artifacts

log = logging.getLogger(__name__)

#: How a task ended: recorded, recorded by another process before, not wanted any more, or failed.
Ended = Literal["done", "known", "late", "failed"]


class Hands:
    """The run contexts that a process keeps, and the methods that do tasks and record results."""

    def __init__(
        self,
        store: EventStore,
        artifacts: Artifacts,
        context: Context,
        refresh: Callable[[RunState], object],
        warm: int = 1,
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._context = context
        #: Folds the new events into a state.
        self._refresh = refresh
        #: Number of runs whose sources and model are kept; the longest unused run is dropped.
        self._warm = warm
        self._benches: dict[str, Bench] = {}
        #: About the last task: candidate, position of its event, seconds of the append, tokens.
        self.last: dict[str, Any] = {}

    def do(self, state: RunState, task: Task, mine: Callable[[], bool] = lambda: True) -> Ended:
        """Do the task, record its result, and return how it ended.

        Raises errors that are not the task's fault. A failure is recorded only if `mine()`: the
        failure of a process that lost its lease meanwhile does not count.
        """
        try:
            event = carry_out(task, self.bench(state, task))
        except OSError as error:
            raise UnavailableError(f"task {task.key} could not be done here: {error}") from error
        except (UnavailableError, ConfigError, MemoryError, torch.OutOfMemoryError) as error:
            if isinstance(task, Start) and isinstance(error, ConfigError):
                self._fail(state, error)
            raise  # not the task's fault: the run stays as it is and can be resumed
        except Exception as error:
            log.debug("task %s failed", task.key, exc_info=error)
            self.last = {"why": f"{type(error).__name__}: {error}"}
            if mine():
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
            "tokens": _tokens(event),
        }
        if isinstance(task, Start) and not (done and done.fresh):
            self._benches.pop(state.run, None)  # the run goes on with another process's `started`
        if done is None:
            return "late"
        if not done.fresh:
            self._compare(state, task, event, done.rows[0])
        return "done" if done.fresh else "known"

    def bench(self, state: RunState, task: Task) -> Bench:
        """Return the run's bench; open and check a new one if none is kept for this state."""
        bench = self._benches.pop(state.run, None)
        if bench is None or bench.state is not state:
            while len(self._benches) >= self._warm:
                self._benches.pop(next(iter(self._benches)))
            bench = Bench(state, self._artifacts)
            if not isinstance(task, Start):
                bench.check_unchanged()
        self._benches[state.run] = bench
        return bench

    def _record(self, state: RunState, task: Task, event: Event) -> Appended | None:
        """Append the result; return None if the run does not wait for the result any more.

        The append is at the version at which the task was still open. Other processes may append
        meanwhile: then refresh the state, and try again if the task is still open.
        """
        new = [New(event, f"{state.run}/{task.key}")]
        while True:
            try:
                return self._store.append(stream(state.run), state.version, new, self._context)
            except ConcurrencyError:
                self._refresh(state)
                if task.key not in {open_.key for open_ in open_tasks(state)}:
                    return None

    def _record_failure(self, state: RunState, task: Task, error: Exception) -> None:
        """Append a `TaskFailed` event; after three of them the decision is `failed`."""
        before = state.failures.get(task.key)
        attempt = before.attempt + 1 if before else 1
        what = visible(f"{type(error).__name__}: {error}")
        event = events.TaskFailed(task=task.key, attempt=attempt, error=what)
        key = f"{state.run}/{task.key}/failed/{attempt}"
        self._store.append(stream(state.run), None, [New(event, key)], self._context)

    def _fail(self, state: RunState, error: Exception) -> None:
        new = New(events.Failed(reason=visible(str(error))), failed_key(state))
        try:
            self._store.append(stream(state.run), state.version, [new], self._context)
        except ConcurrencyError:
            return  # another process started it, or it was cancelled meanwhile

    def _compare(self, state: RunState, task: Task, event: Event, row: Envelope) -> None:
        """Compare a result with the recorded one; append a `DivergenceDetected` if they differ.

        Another process had done the task already. A difference means that the profile is broken.
        """
        recorded = events.luckless(events.REGISTRY.load(row))
        found = events.luckless(event)
        if recorded == found or row.type == "profiled" or _was_probed(state, row):
            return
        differs = events.DivergenceDetected(
            task=task.key, recorded=_essence(recorded), found=_essence(found)
        )
        key = f"{state.run}/{task.key}/divergence/{uuid.uuid4().hex}"
        self._store.append(stream(state.run), None, [New(differs, key)], self._context)

    def keep(self, state: RunState) -> None:
        """Write the champion and the elites to disk, if in memory: a restart would need them most."""
        assert state.submitted
        last = state.generations[max(state.generations)]
        wanted = [*last.ranking[: state.submitted.config.search.kept], state.champion]
        for id_ in dict.fromkeys(filter(None, wanted)):
            digest = state.built[id_][0]
            weights = self._artifacts.in_memory(digest)
            if weights is not None:
                self._artifacts.keep(digest, weights)


def _was_probed(state: RunState, row: Envelope) -> bool:
    """Return True if the event depends on timing: a probed `started`, of which the first stands."""
    assert state.submitted
    config = state.submitted.config
    wanted = (config.batch_tokens, config.evaluation_dtype, config.evaluation_compile)
    return row.type == "started" and "probe" in wanted


def _tokens(event: Event) -> int:
    """Return the number of predicted tokens that were scored."""
    if not isinstance(event, events.Evaluated):
        return 0
    return sum(sum(outcomes.tokens) for outcomes in event.outcomes.values())


def _essence(data: dict) -> str:
    return str(data.get("digest") or data.get("components") or data)
