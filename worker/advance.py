"""advance: fold, decide, append or work. Stateless but for caches; any number of processes may do
it with one run at once, and any of them may be killed at any point.
"""

from __future__ import annotations

import getpass
import hashlib
import logging
import os
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from events import (
    ConcurrencyError,
    Context,
    Envelope,
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
)
from evomerge.log import news, stream
from evomerge.projections import Runs
from evomerge.run import Task, decide
from evomerge.state import RunState, absorb
from worker.artifacts import Artifacts
from worker.bench import set_threads
from worker.hands import Hands
from worker.leases import Leases

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


def keyed_name(key: str, by: str | None = None) -> str:
    """The name of the run that a user's idempotency key means."""
    return f"key-{hashlib.sha256(f'{by or actor()}/{key}'.encode()).hexdigest()[:12]}"


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
    priority: int | None = None,
    labels: tuple[str, ...] = (),
    key: str | None = None,
    quarantine: facts.Quarantine | None = None,
    by: str | None = None,
) -> str:
    """Record that a run is wanted, `by` a user or whose process this is; returns its name.

    The same `key` from the same user means the same run: the second time nothing is recorded. Raises
    ConflictError where it is asked for with other settings then.
    """
    check_queued(priority, labels, key)
    run = run or (new_name() if key is None else keyed_name(key, by))
    if "/" in run:
        raise ConfigError(f"run name {run!r} holds a slash: leave it out.")
    event = facts.Submitted(
        run=run, owner=by or actor(), config=config, sources=sources, base=base, data=data,
        output_dir=output_dir, priority=priority or 0, labels=labels, quarantine=quarantine or "fail",
    )  # fmt: skip
    done = store.append(
        stream(run), 0, [New(event, f"{run}/submitted")], Context(actor=by or actor())
    )
    if not done.fresh and facts.REGISTRY.load(done.rows[0]) != event:
        raise ConflictError(
            f"key {key!r} started run {run} with other settings. Use another key, or the old settings."
        )
    return run


def check_queued(
    priority: int | None = None, labels: tuple[str, ...] = (), key: str | None = None
) -> None:
    """Raise ConfigError for what the queue cannot honour."""
    if priority is not None and abs(priority) > facts.MOST_PRIORITY:
        raise ConfigError(
            f"priority {priority} is out of range: give a number from -{facts.MOST_PRIORITY:,} to "
            f"{facts.MOST_PRIORITY:,}."
        )
    if key is not None and not key.strip():
        raise ConfigError("the idempotency key is empty: give one, or leave out --key.")
    bad = [label for label in labels if not re.fullmatch(r"[\w./+-]+", label)]
    if bad:
        raise ConfigError(
            f"label {bad[0]!r} is empty, has spaces or a colon: give words like big-gpu."
        )


def append_facts(store: EventStore, state: RunState, new: list[New], context: Context) -> None:
    """Append facts at the version that they were decided at; nothing where somebody was first.

    Raises ForgeError where they are recorded already and the state does not know it: it would go on
    for ever.
    """
    failpoints.hit("facts-decided")
    try:
        done = store.append(stream(state.run), state.version, new, context)
    except ConcurrencyError:
        return  # fold and decide again
    if not done.fresh and done.rows[-1].version <= state.version:
        known = ", ".join(row.key for row in done.rows)
        raise ForgeError(f"run {state.run} cannot go on: {known} is recorded already.")
    failpoints.hit("facts-appended")


@dataclass
class Worker:
    """One process's way of carrying a run on."""

    store: EventStore
    artifacts: Artifacts
    watch: Watcher = lambda state, rows: None
    #: Asked between tasks: true stops.
    stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        set_threads()
        self._leases = Leases(self.store.database)
        self._context = Context(actor=actor())
        self._hands = Hands(self.store, self.artifacts, self._context, self._refresh)

    def run(self, run: str) -> RunState:
        """Carry the run on until it has ended or `stop()`. Raises what cannot be worked around."""
        state = RunState()
        while True:
            self._refresh(state, run)
            decision = decide(state)
            if decision.facts:
                append_facts(self.store, state, decision.facts, self._context)
            elif state.ended or self.stop():
                if state.ended:
                    self._leases.forget(run)
                return state
            elif not self._work_on(state, decision.tasks):
                time.sleep(PAUSED_POLL if state.paused else POLL)

    def _refresh(self, state: RunState, run: str = "") -> None:
        """Fold what is new, tell the watcher, and keep what the next generation will read."""
        rows = news(self.store, run or state.run, state)
        if not rows and not state.version:
            raise NotFoundError(f"run {run!r} is not known. List the runs with `forge runs`.")
        absorb(state, rows)
        if any(row.type == "generation_completed" for row in rows):
            self._hands.keep(state)
        if any(row.type in PROJECTED for row in rows):
            project(self.store)
        if rows:
            self.watch(state, rows)

    def _work_on(self, state: RunState, tasks: list[Task]) -> bool:
        """Do the first task that nobody else is at. False: all are taken."""
        for task in tasks:
            name = f"{state.run}/{task.key}"
            if self._leases.claim(name) is None:
                continue
            try:
                if self.store.version(stream(state.run)) == state.version:
                    with self._leases.heartbeat(name):
                        self._hands.do(state, task)
            finally:
                self._leases.release(name)
            failpoints.hit("task-released")
            return True
        return False


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
