"""State of a run: the fold of its events.

Pure; no clock, no I/O. `evolve` commutes over the completions of tasks that are open at the same time:
answers go into dictionaries keyed by what they are about, and nothing depends on which came first.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, ClassVar, Self, TypeVar

from agent_forge.events import Envelope, Event, Registry, canonical_json
from agent_forge.runs import kinds, streams
from agent_forge.runs.record import events, lineage
from agent_forge.runs.record.device_setting import AUTO
from agent_forge.runs.record.lineage import NEWEST, SpentTime

Result = TypeVar("Result")
Handler = Callable[[Any, Any], None]

#: Events before which no process worked on the run: the time up to them was no work.
_WAITED = (events.Forked, events.Retried, events.Exported, events.Imported)

#: Key of `State.remembered` for a result that any event could change.
EVERY = ("every event",)


@dataclass
class State:
    """Everything that is known about a run after some prefix of its log.

    A kind's state derives from this one. An answer for which the kind has no handler is found in
    `answers` under its task's key, so that a kind of simple tasks writes no fold.
    """

    #: The kind of run, and its events.
    kind: ClassVar[str] = ""
    registry: ClassVar[Registry] = Registry()
    #: Event → the handler that applies it to a state, in place; a kind adds its own.
    handlers: ClassVar[dict[type[Event], Handler]] = {}
    #: Types that the kind leaves out of the lineage, beside `lineage.OUTSIDE`.
    outside: ClassVar[frozenset[str]] = frozenset()
    #: Events that keep the cache of `remembered`, but for what depends on every event.
    keeping: ClassVar[tuple[type[Event], ...]] = ()

    #: Version and head of the run's own stream.
    version: int = 0
    head: str = "0" * 64
    #: Number of events in the whole history, those before a fork included.
    place: int = 0
    run: str = ""
    #: As submitted; after a fork, with the settings as changed.
    submitted: Any = None
    forked: Any = None
    started: Any = None
    completed: Any = None
    failed: events.Failed | None = None
    cancelled: events.Cancelled | None = None
    paused: bool = False
    #: The last import from an archive; a submission from before it was made on another system.
    imported: events.Imported | None = None
    priority: int = 0
    #: Task → the event that answered it, for events without a handler.
    answers: dict[str, Event] = field(default_factory=dict[str, Event])
    #: Task → its last failure.
    failures: dict[str, events.TaskFailed] = field(default_factory=dict[str, events.TaskFailed])
    #: Task → attempts that no longer count; then, how often users have asked for a retry.
    forgiven: dict[str, int] = field(default_factory=dict[str, int])
    retries: int = 0
    #: Task → the last death of a process that did it; then, task → deaths that no longer count.
    deaths: dict[str, events.TaskDied] = field(default_factory=dict[str, events.TaskDied])
    forgiven_deaths: dict[str, int] = field(default_factory=dict[str, int])
    #: Task → first piece → the recorded part of a long task.
    parts: dict[str, dict[int, events.PartDone]] = field(
        default_factory=dict[str, dict[int, events.PartDone]]
    )
    #: The most private memory that a process took for a task, in bytes; 0: none took much.
    peak_bytes: int = 0
    quarantined: dict[str, events.TaskQuarantined] = field(
        default_factory=dict[str, events.TaskQuarantined]
    )
    divergences: list[events.DivergenceDetected] = field(
        default_factory=list[events.DivergenceDetected]
    )
    #: What users have asked for → the user who did so last.
    asked_by: dict[events.Wish, str] = field(default_factory=dict[events.Wish, str])
    #: Events of a newer version that were skipped: such a state is only for display.
    skipped: list[str] = field(default_factory=list[str])
    #: (idempotency key, type, data) of events that must not depend on luck; a later entry replaces
    #: an earlier entry whose key differs in the run's name only.
    lineage: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    #: What was spent until now.
    spent: SpentTime = field(default_factory=SpentTime)
    #: When the newest event was recorded; None while the clock does not count.
    clock: str | None = None
    #: Digest → what the run that this run is a task of calls the model; only for display, of no event.
    called: Mapping[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)
    #: Cache of `remembered`; no part of the state.
    memory: dict[tuple[object, ...], Any] = field(
        default_factory=dict[tuple[object, ...], Any], compare=False, repr=False
    )

    @property
    def stream(self) -> str:
        """The name of the run's own stream."""
        return streams.stream(self.kind, self.run)

    @property
    def ended(self) -> bool:
        """True if the run has completed, failed or been cancelled."""
        return bool(self.completed or self.failed or self.cancelled)

    @property
    def status(self) -> str:
        """The run's status in one word, for lists."""
        for word in ("completed", "failed", "cancelled", "paused"):
            if getattr(self, word):
                return word
        return "running" if self.started else "submitted"

    @property
    def device(self) -> str:
        """The device of the settings; if that is auto, the one that `started` pins, or auto."""
        device = self.submitted.config.device
        profile = getattr(self.started, "profile", None)
        return profile.device if device == AUTO and profile is not None else device

    def lineage_digest(self, rule: int = NEWEST) -> str:
        """Return the SHA-256 of what a crashed and an undisturbed run share, sorted by key, by a rule.

        The digest is of the data as recorded, so it does not change when schemas grow; the device
        auto counts as the device that was pinned.
        """
        device = self.device if self.submitted else AUTO
        entries = {
            key.partition("/")[2]: lineage.digest(self.shared(type_, json.loads(data), rule, device))
            for key, type_, data in self.lineage
        }
        return lineage.digest(entries)

    @classmethod
    def shared(cls, type_: str, data: dict[str, object], rule: int, device: str) -> dict[str, Any]:
        """Return the part of an event's data that the lineage digest covers, by a rule.

        `device` is the one that the run pins; auto if it pins none.
        """
        return lineage.shared(type_, data, rule, device)

    def remembered(self, key: tuple[object, ...], work: Callable[[], Result]) -> Result:
        """Return the result of `work`, cached under `key` until an event could change the result.

        Events of the classes in `keeping` leave the cache as it is, but for the key `EVERY`; every
        other event empties it.
        """
        if key not in self.memory:
            self.memory[key] = work()
        return self.memory[key]

    def making_seconds(self, digest: str) -> float:
        """Return the seconds that it took to make the weights `digest`; 0, the default: not known."""
        return 0.0

    # ---- the fold ----------------------------------------------------------------------------

    def take(self, event: Event, recorded_at: str | None = None, key: str = "") -> None:
        """Apply one more event, in place; `key` is the key that it is recorded under.

        Raises TypeError for an event of another kind.
        """
        handler = self.handlers.get(type(event))
        if handler is not None:
            handler(self, event)
        elif self.registry.types().get(event.type) is type(event):
            self.answers[key.partition("/")[2]] = event
        else:
            raise TypeError(f"{event.type} is not an event of {kinds.of(self.kind).title}")
        self.spend(event)
        self._count_wall(event, recorded_at)
        if isinstance(event, self.keeping):
            self.memory.pop(EVERY, None)
        else:
            self.memory.clear()

    def spend(self, event: Event) -> None:
        """Add the device seconds of an event to what the run has spent, in place."""
        seconds = self.spent.device + lineage.device(event)
        self.spent = replace(self.spent, device=seconds)

    def _count_wall(self, event: Event, recorded_at: str | None) -> None:
        if isinstance(event, events.Described):
            return  # at any time, even after the end: the next event counts on
        if self.clock is not None and recorded_at is not None and not isinstance(event, _WAITED):
            wall = self.spent.wall + lineage.elapsed(self.clock, recorded_at).total_seconds()
            self.spent = replace(self.spent, wall=wall)
        self.clock = recorded_at if self.started is not None and not self.paused else None

    def fork_changes(self, event: events.Forked) -> None:
        """Apply a fork's changed settings beyond the part common to all kinds; by default nothing."""

    def absorb(self, rows: Iterable[Envelope], showing: bool = False) -> Self:
        """Fold more recorded rows, in place, and return this state.

        The rows must follow directly on those folded so far. Raises UnknownEventError for an event
        that a newer version wrote: nothing may be decided without the event. With `showing` such
        rows are skipped, for display only, and `skipped` names them.
        """
        if showing:
            rows = self._known(rows)
        outside, note = lineage.OUTSIDE | self.outside, self.lineage.append
        for row, event in self.registry.load_each(rows):
            self.take(event, row.recorded_at, row.key)
            if isinstance(event, events.Wish):
                self.asked_by[event] = row.actor
            if row.type not in outside:
                note((row.key, row.type, row.data))
            elif isinstance(event, events.Forked) and event.changes:  # as recorded, for ever
                config = canonical_json({"config": json.loads(row.data)["config"]})
                self.lineage[-1] = (_SETTINGS.format(event.run), events.Submitted.type, config)
            self.version, self.head, self.place = row.version, row.hash, self.place + 1
        return self

    def _known(self, rows: Iterable[Envelope]) -> Iterator[Envelope]:
        """Yield the rows that this version knows; count the others and note them."""
        for row in rows:
            if self.registry.knows(row):
                yield row
            else:
                self.skipped.append(f"{row.type}@{row.schema}")
                self.version, self.head, self.place = row.version, row.hash, self.place + 1


#: Lineage key of a fork's changed settings.
_SETTINGS = "{}/submitted"


def on_submitted(state: State, event: events.Submitted) -> None:
    """Apply `submitted`; a kind whose handler does more calls this first."""
    state.submitted, state.run, state.priority = event, event.run, event.priority


def on_forked(state: State, event: events.Forked) -> None:
    """Turn the run into the fork; forget its failures, deaths, quarantine, cancellation, pause.

    A kind whose handler does more calls this first.
    """
    assert state.submitted
    changed = {"run": event.run, "owner": event.owner, "output_dir": event.output_dir}
    state.submitted = state.submitted.model_copy(update={**changed, "config": event.config})
    state.run, state.forked = event.run, event
    state.failures, state.forgiven, state.retries = {}, {}, 0
    state.deaths, state.forgiven_deaths = {}, {}
    state.quarantined, state.parts = {}, {}
    state.cancelled, state.paused = None, False
    _forget_failure(state)
    if event.changes:
        state.fork_changes(event)
        settings = canonical_json({"config": event.config.model_dump(mode="json")})
        state.lineage.append((_SETTINGS.format(event.run), events.Submitted.type, settings))


def _on_cancelled(state: State, event: events.Cancelled) -> None:
    """End a run; a run that waited for a decision is given up, and no longer failed."""
    state.cancelled, state.failed = event, None


def _forget_failure(state: State) -> None:
    """Remove the run's failure from the state and from the lineage."""
    state.failed = None
    state.lineage[:] = [entry for entry in state.lineage if entry[1] != events.Failed.type]


def _on_retried(state: State, _event: events.Retried) -> None:
    forgive(state)
    state.retries += 1
    _forget_failure(state)


def forgive(state: State) -> None:
    """Stop counting the failures and deaths so far, and empty the quarantine."""
    state.forgiven = {task: failure.attempt for task, failure in state.failures.items()}
    state.forgiven_deaths = {task: death.attempt for task, death in state.deaths.items()}
    state.quarantined = {}


def _on_imported(state: State, event: events.Imported) -> None:
    """Give the run to the importer, and pause it until the importer resumes it."""
    assert state.submitted
    changed = {"owner": event.owner, "output_dir": None}
    state.submitted = state.submitted.model_copy(update=changed)
    state.imported, state.paused, state.priority = event, True, 0


def _on_part_done(state: State, event: events.PartDone) -> None:
    # A new dictionary: `evolve` copies a state's own dictionaries, and not those within.
    state.parts[event.task] = {**state.parts.get(event.task, {}), event.begin: event}


def put(name: str, *key: str) -> Handler:
    """Return a handler that puts an event into the dictionary `name`, under its fields `key`."""
    pick = attrgetter(*key)

    def handle(state: State, event: object) -> None:
        getattr(state, name)[pick(event)] = event

    return handle


def add(name: str) -> Handler:
    """Return a handler that adds an event to the list `name`."""
    return lambda state, event: getattr(state, name).append(event)


def assign(name: str, value: object = None) -> Handler:
    """Return a handler that sets the attribute `name` to the event, or to a value."""
    return lambda state, event: setattr(state, name, event if value is None else value)


#: Handlers of the events that are the same class for every kind of run.
COMMON: dict[type[Event], Handler] = {
    events.Failed: assign("failed"),
    events.Cancelled: _on_cancelled,
    events.Paused: assign("paused", True),
    events.Resumed: assign("paused", False),
    events.Retried: _on_retried,
    events.PriorityChanged: lambda state, event: setattr(state, "priority", event.priority),
    events.Imported: _on_imported,
    events.Exported: lambda _state, _event: None,
    events.Described: lambda _state, _event: None,
    events.PartDone: _on_part_done,
    events.MemoryPeaked: lambda state, event: setattr(
        state, "peak_bytes", max(state.peak_bytes, event.bytes)
    ),
    events.TaskFailed: put("failures", "task"),
    events.TaskDied: put("deaths", "task"),
    events.TaskQuarantined: put("quarantined", "task"),
    events.DivergenceDetected: add("divergences"),
}


def handlers(
    submitted: type[events.Submitted],
    forked: type[events.Forked],
    started: type[events.Started],
    completed: type[events.Completed],
) -> dict[type[Event], Handler]:
    """Return {event class: handler} of the events that all kinds have, by a kind's own classes."""
    return COMMON | {
        submitted: on_submitted,
        forked: on_forked,
        started: assign("started"),
        completed: assign("completed"),
    }


#: Values of a state that change in place.
_COPIED: tuple[type[object], ...] = (dict, list)


def evolve(state: State, event: Event, key: str = "") -> State:
    """Return the state after one more event. Pure: the given state is not changed."""
    after = copy(state)
    for slot in fields(state):
        value: object = getattr(state, slot.name)
        if isinstance(value, _COPIED):
            setattr(after, slot.name, copy(value))
    after.memory = {}
    after.take(event, key=key)
    return after


S = TypeVar("S", bound=State)


def fold_into(state: S, rows: Iterable[Envelope], showing: bool = False) -> S:
    """Fold a whole history into an empty state, with the garbage collector at rest; return it."""
    collects = gc.isenabled()
    gc.disable()  # a fold makes no reference cycles; the collector takes over half of its time
    try:
        return state.absorb(rows, showing)
    finally:
        if collects:
            gc.enable()
