"""advance: fold, decide, append or work. Stateless but for caches; any number of processes may do
it with one run at once, and any of them may be killed at any point.
"""

from __future__ import annotations

import getpass
import hashlib
import logging
import os
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy.exc import SQLAlchemyError

from events import (
    ConcurrencyError,
    Context,
    Envelope,
    Event,
    EventsError,
    EventStore,
    New,
    failpoints,
)
from events.projection import catch_up
from evomerge import facts
from evomerge.config import EvoMergeConfig
from evomerge.errors import (
    ConfigError,
    ConflictError,
    ForgeError,
    NotFoundError,
    RunCancelledError,
    RunFailedError,
    UnavailableError,
)
from evomerge.log import news, stream
from evomerge.projections import Runs
from evomerge.run import Start, Task, decide, failed_key
from evomerge.state import RunState, absorb
from worker.artifacts import Artifacts
from worker.bench import Bench, set_threads
from worker.leases import Leases
from worker.tasks import carry_out

log = logging.getLogger(__name__)

#: Seconds between looks at the log while others hold every task.
POLL = 0.05
#: Seconds between looks at the log of a paused run.
PAUSED_POLL = 0.5

#: After these the run list is brought up to date; whoever reads it does so anyway.
PROJECTED = frozenset(
    {"submitted", "forked", "generation_completed", "completed", "failed", "cancelled"}
)

Watcher = Callable[[RunState, list[Envelope]], None]


def actor() -> str:
    """Who is acting: FORGE_USER or the account's name."""
    try:
        return os.environ.get("FORGE_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def new_name() -> str:
    """A name for a run: the day and six random digits."""
    return f"{time.strftime('%Y%m%d')}-{uuid.uuid4().hex[:6]}"


def keyed_name(key: str) -> str:
    """The name of the run that a user's idempotency key means."""
    return f"key-{hashlib.sha256(f'{actor()}/{key}'.encode()).hexdigest()[:12]}"


def project(store: EventStore) -> None:
    """Bring the run list up to date; a failure there is no failure of the run."""
    try:
        catch_up(store, Runs())
    except (EventsError, ForgeError, SQLAlchemyError) as error:
        log.warning("the run list is not up to date: %s", error)


def submit(
    store: EventStore,
    config: EvoMergeConfig,
    sources: tuple[facts.ModelReference, ...],
    base: facts.ModelReference | None,
    data: tuple[str, ...],
    run: str | None = None,
    output_dir: str | None = None,
    priority: int = 0,
    labels: tuple[str, ...] = (),
    key: str | None = None,
) -> str:
    """Record that a run is wanted; returns its name.

    The same `key` from the same user means the same run: the second time nothing is recorded. Raises
    ConflictError where it is asked for with other settings then.
    """
    run = run or (new_name() if key is None else keyed_name(key))
    if "/" in run:
        raise ConfigError(f"run name {run!r} holds a slash: leave it out.")
    event = facts.Submitted(
        run=run, owner=actor(), config=config, sources=sources, base=base, data=data,
        output_dir=output_dir, priority=priority, labels=labels,
    )  # fmt: skip
    done = store.append(stream(run), 0, [New(event, f"{run}/submitted")], Context(actor=actor()))
    if not done.fresh and facts.REGISTRY.load(done.rows[0]) != event:
        raise ConflictError(
            f"key {key!r} started run {run} with other settings. Use another key, or the old settings."
        )
    return run


@dataclass
class Worker:
    """One process's way of carrying a run on."""

    store: EventStore
    artifacts: Artifacts
    watch: Watcher = lambda state, rows: None
    #: Asked between tasks: true stops.
    stop: Callable[[], bool] = lambda: False
    _bench: Bench | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        set_threads()
        self._leases = Leases(self.store.database)
        self._context = Context(actor=actor())

    def run(self, run: str) -> RunState:
        """Carry the run on until it has ended or `stop()`. Raises what cannot be worked around."""
        state = RunState()
        while True:
            self._refresh(state, run)
            decision = decide(state)
            if decision.facts:
                self._append_facts(state, decision.facts)
            elif state.ended or self.stop():
                if state.ended:
                    self._leases.forget(run)
                return state
            elif not self._work_on(state, decision.tasks):
                time.sleep(PAUSED_POLL if state.paused else POLL)

    def _refresh(self, state: RunState, run: str) -> None:
        """Fold what is new, tell the watcher, and keep what the next generation will read."""
        rows = news(self.store, run, state)
        if not rows and not state.version:
            raise NotFoundError(f"run {run!r} is not known. List the runs with `forge runs`.")
        absorb(state, rows)
        if self._bench is not None and any(r.type == "generation_completed" for r in rows):
            self._keep(state)
        if any(row.type in PROJECTED for row in rows):
            project(self.store)
        if rows:
            self.watch(state, rows)

    def _append_facts(self, state: RunState, new: list[New]) -> None:
        failpoints.hit("facts-decided")
        try:
            done = self.store.append(stream(state.run), state.version, new, self._context)
        except ConcurrencyError:
            return  # somebody was first: fold and decide again
        if not done.fresh and done.rows[-1].version <= state.version:
            known = ", ".join(row.key for row in done.rows)
            raise ForgeError(f"run {state.run} cannot go on: {known} is recorded already.")
        failpoints.hit("facts-appended")

    def _work_on(self, state: RunState, tasks: list[Task]) -> bool:
        """Do the first task that nobody else is at. False: all are taken."""
        for task in tasks:
            name = f"{state.run}/{task.key}"
            if not self._leases.claim(name):
                continue
            try:
                if self.store.version(stream(state.run)) == state.version:
                    with self._leases.heartbeat(name):
                        self._do(state, task)
            finally:
                self._leases.release(name)
            failpoints.hit("task-released")
            return True
        return False

    def _do(self, state: RunState, task: Task) -> None:
        key = f"{state.run}/{task.key}"
        try:
            event = carry_out(task, self._open(state, task))
        except (UnavailableError, ConfigError, MemoryError) as error:
            if isinstance(task, Start) and isinstance(error, ConfigError):
                self._fail(state, error)
            raise  # not the task's fault: the run stays as it is and can be resumed
        except Exception as error:
            self._record_failure(state, task, error)
            return
        failpoints.hit("task-done")
        recorded = self.store.append(stream(state.run), None, [New(event, key)], self._context)
        failpoints.hit("task-appended")
        if not recorded.fresh:
            self._compare(state, task, event, recorded.rows[0])

    def _open(self, state: RunState, task: Task) -> Bench:
        if self._bench is None or self._bench.state is not state:
            bench = Bench(state, self.artifacts)
            if not isinstance(task, Start):
                bench.check_unchanged()
            self._bench = bench
        return self._bench

    def _record_failure(self, state: RunState, task: Task, error: Exception) -> None:
        """A failure is an event; the decision after three of them is `failed`."""
        log.debug("task %s failed", task.key, exc_info=error)
        before = state.failures.get(task.key)
        attempt = before.attempt + 1 if before else 1
        what = f"{type(error).__name__}: {error}"
        event = facts.TaskFailed(task=task.key, attempt=attempt, error=what)
        key = f"{state.run}/{task.key}/failed/{attempt}"
        self.store.append(stream(state.run), None, [New(event, key)], self._context)

    def _fail(self, state: RunState, error: Exception) -> None:
        event = facts.Failed(reason=str(error))
        new = New(event, failed_key(state))
        with suppress(
            ConcurrencyError
        ):  # another process started it, or it was cancelled meanwhile
            self.store.append(stream(state.run), state.version, [new], self._context)

    def _compare(self, state: RunState, task: Task, event: Event, row: Envelope) -> None:
        """The task had been done already: with the same result, or the profile is broken."""
        recorded = facts.luckless(facts.REGISTRY.load(row))
        found = facts.luckless(event)
        if recorded == found or row.type == "profiled":
            return
        differs = facts.DivergenceDetected(
            task=task.key,
            recorded=_essence(recorded),
            found=_essence(found),
        )
        key = f"{state.run}/{task.key}/divergence/{uuid.uuid4().hex}"
        self.store.append(stream(state.run), None, [New(differs, key)], self._context)

    def _keep(self, state: RunState) -> None:
        """Champion and elites go to disk: they are what a restart would miss most."""
        assert self._bench
        assert state.submitted
        last = state.generations[max(state.generations)]
        wanted = [*last.ranking[: state.submitted.config.elite_size], state.champion]
        for id_ in dict.fromkeys(filter(None, wanted)):
            digest = state.built[id_][0]
            weights = self.artifacts.get(digest)
            if weights is not None:
                self.artifacts.keep(digest, weights)


def _essence(data: dict) -> str:
    return str(data.get("digest") or data.get("components") or data)


def finish(worker: Worker, run: str) -> RunState:
    """Carry the run on to its end. Raises RunFailedError, RunCancelledError where that is not good."""
    state = worker.run(run)
    if state.failed is not None:
        raise RunFailedError(
            f"run {run} failed: {state.failed.reason}. Try again with `forge retry {run}` and "
            f"`forge evo --resume {run}`."
        )
    if state.cancelled is not None:
        why = f": {state.cancelled.reason}" if state.cancelled.reason else ""
        raise RunCancelledError(f"run {run} was cancelled{why}. `forge fork` can branch it.")
    return state
