"""Doing one task of a run here, and recording what came of it. Used by embedded and queued work."""

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
from runs.errors import ConfigError, UnavailableError
from runs.system.plain_text import visible
from worker.storage.weight_cache import Artifacts
from worker.tasks.context import Bench
from worker.tasks.execute import carry_out

log = logging.getLogger(__name__)

#: What became of a task: recorded, recorded before by somebody, not wanted any more, or it raised.
Ended = Literal["done", "known", "late", "failed"]


class Hands:
    """What a process has in hand, and how it records results."""

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
        #: Folds what is new into a state.
        self._refresh = refresh
        #: Runs whose sources and model are kept; the longest unused go.
        self._warm = warm
        self._benches: dict[str, Bench] = {}
        #: Of the last task: candidate, position of its event, seconds of the append, tokens.
        self.last: dict[str, Any] = {}

    def do(self, state: RunState, task: Task, mine: Callable[[], bool] = lambda: True) -> Ended:
        """Do the task and record it. Raises what is not the task's fault.

        A failure is recorded where `mine()`: one that lost its lease meanwhile does not count.
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
            self._benches.pop(state.run, None)  # the run goes on with what another one read
        if done is None:
            return "late"
        if not done.fresh:
            self._compare(state, task, event, done.rows[0])
        return "done" if done.fresh else "known"

    def bench(self, state: RunState, task: Task) -> Bench:
        """The run's bench, opened and checked where it is not at hand."""
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
        """Append the result, or None where the run does not wait for it any more.

        At the version at which it was still asked for: others may append in between.
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
        """A failure is an event; the decision after three of them is `failed`."""
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
        """The task had been done already: with the same result, or the profile is broken."""
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
        """Champion and elites go to disk: they are what a restart would miss most."""
        assert state.submitted
        last = state.generations[max(state.generations)]
        wanted = [*last.ranking[: state.submitted.config.elite_size], state.champion]
        for id_ in dict.fromkeys(filter(None, wanted)):
            digest = state.built[id_][0]
            weights = self._artifacts.in_memory(digest)
            if weights is not None:
                self._artifacts.keep(digest, weights)


def _was_probed(state: RunState, row: Envelope) -> bool:
    """Whether timing has a say in it: the first one stands."""
    assert state.submitted
    config = state.submitted.config
    wanted = (config.batch_tokens, config.evaluation_dtype, config.evaluation_compile)
    return row.type == "started" and "probe" in wanted


def _tokens(event: Event) -> int:
    """How many predicted tokens were scored."""
    if not isinstance(event, events.Evaluated):
        return 0
    return sum(sum(outcomes.tokens) for outcomes in event.outcomes.values())


def _essence(data: dict) -> str:
    return str(data.get("digest") or data.get("components") or data)
