"""State of a run: the fold of its events.

Pure; no clock, no I/O. `evolve` commutes over the completions inside a generation: completions go
into dictionaries keyed by what they are about, and nothing depends on which came first.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from events import Envelope, Event, canonical_json
from evomerge.config import EvoMergeConfig
from evomerge.recipes.recipe import Recipe, Source
from evomerge.run import budget, events, lineage
from evomerge.run.budget import Spent
from evomerge.run.scores import EvaluationKey, Measured

Candidate = events.Seeded | events.Merged | events.Mutated | events.Sampled | events.Crossed


@dataclass
class RunState(Measured):
    """Everything that is known about a run after some prefix of its log."""

    #: Version and head of the run's own stream.
    version: int = 0
    head: str = "0" * 64
    #: Number of events in the whole history, those before a fork included.
    place: int = 0
    run: str = ""
    #: As submitted; after a fork, with the settings as changed.
    submitted: events.Submitted | None = None
    forked: events.Forked | None = None
    #: (generation, settings by which candidates are proposed and items drawn from there on).
    eras: list[tuple[int, EvoMergeConfig]] = field(default_factory=list)
    #: (generation, version of the strategy that decides from there on).
    strategies: list[tuple[int, str]] = field(default_factory=list)
    started: events.Started | None = None
    profiled: events.Profiled | None = None
    recipes: dict[str, Recipe] = field(default_factory=dict)
    #: Recipe id → (digest of the weights, sketch).
    built: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: Baseline name → recipe id.
    baselines: dict[str, str] = field(default_factory=dict)
    #: (generation, slot) → what was built there.
    candidates: dict[tuple[int, int], Candidate] = field(default_factory=dict)
    #: (generation, slot) → the layers chosen for it.
    layers: dict[tuple[int, int], events.LayersChosen] = field(default_factory=dict)
    evaluations: dict[EvaluationKey, events.Evaluated] = field(default_factory=dict)
    generations: dict[int, events.GenerationCompleted] = field(default_factory=dict)
    diversities: dict[int, events.DiversityMeasured] = field(default_factory=dict)
    reseeded: dict[int, events.Reseeded] = field(default_factory=dict)
    champions: list[events.ChampionChanged] = field(default_factory=list)
    converged: events.Converged | None = None
    completed: events.Completed | None = None
    failed: events.Failed | None = None
    cancelled: events.Cancelled | None = None
    paused: bool = False
    #: The last import from an archive; a submission from before it was made on another system.
    imported: events.Imported | None = None
    priority: int = 0
    #: Task → its last failure.
    failures: dict[str, events.TaskFailed] = field(default_factory=dict)
    #: Task → attempts that no longer count; then, how often users have asked for a retry.
    forgiven: dict[str, int] = field(default_factory=dict)
    retries: int = 0
    #: Task → the last death of a process that did it; then, task → deaths that no longer count.
    deaths: dict[str, events.TaskDied] = field(default_factory=dict)
    forgiven_deaths: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, events.TaskQuarantined] = field(default_factory=dict)
    divergences: list[events.DivergenceDetected] = field(default_factory=list)
    #: Events of a newer version that were skipped: such a state is only for display.
    skipped: list[str] = field(default_factory=list)
    #: (idempotency key, type, data) of events that must not depend on luck; a later entry replaces
    #: an earlier entry whose key differs in the run's name only.
    lineage: list[tuple[str, str, str]] = field(default_factory=list)
    #: What was spent until now; then, until each generation was closed (−1: before generation 0).
    spent: Spent = field(default_factory=Spent)
    closed: dict[int, Spent] = field(default_factory=dict)
    #: When the newest event was recorded; None while the clock does not count.
    clock: str | None = None
    #: Cache of `remembered`; no part of the state.
    memory: dict[tuple[object, ...], Any] = field(default_factory=dict, compare=False, repr=False)

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
    def champion(self) -> str | None:
        """The champion's recipe id."""
        return self.champions[-1].recipe_id if self.champions else None

    @property
    def generation(self) -> int:
        """The generation that is being worked on."""
        return len(self.generations)

    def lineage_digest(self) -> str:
        """Return the SHA-256 of what a crashed and an undisturbed run share, sorted by key.

        The digest is of the data as recorded, so it does not change when schemas grow.
        """
        entries = {
            key.partition("/")[2]: lineage.entry(type_, data) for key, type_, data in self.lineage
        }
        return hashlib.sha256(canonical_json(entries).encode()).hexdigest()

    def settings(self, generation: int) -> EvoMergeConfig:
        """Return the settings that propose a generation's candidates and draw its items."""
        return [config for first, config in self.eras if first <= generation][-1]

    def version_of(self, generation: int) -> str:
        """Return the strategy that decides a generation, as "elite-loser@1"."""
        return [version for first, version in self.strategies if first <= generation][-1]

    def since(self, generation: int) -> int:
        """Return the first generation that the strategy of this generation decides."""
        return [first for first, _ in self.strategies if first <= generation][-1]

    def slots(self, generation: int) -> list[int]:
        """Return the slots of a generation whose candidate was built and measured on its draw."""
        return sorted(
            slot
            for (g, slot), candidate in self.candidates.items()
            if g == generation and (candidate.recipe_id, "search", g) in self.evaluations
        )

    def remembered(self, key: tuple[object, ...], work: Callable[[], Any]) -> Any:
        """Return the result of `work`, cached under `key` until an event could change the result.

        Completions of tasks change neither what was asked for in their generation nor, once its
        ranking is known, its finalists. Every other event empties the cache.
        """
        if key not in self.memory:
            self.memory[key] = work()
        return self.memory[key]


def _on_submitted(state: RunState, event: events.Submitted) -> None:
    state.submitted, state.run = event, event.run
    state.priority = event.priority
    state.eras = [(0, event.config)]


def _on_forked(state: RunState, event: events.Forked) -> None:
    """Turn the run into the fork; forget its failures, deaths, quarantine, cancellation, pause."""
    assert state.submitted
    changed = {"run": event.run, "owner": event.owner, "output_dir": event.output_dir}
    state.submitted = state.submitted.model_copy(update={**changed, "config": event.config})
    state.run, state.forked = event.run, event
    state.failures, state.forgiven, state.retries = {}, {}, 0
    state.deaths, state.forgiven_deaths = {}, {}
    state.quarantined = {}
    state.cancelled, state.paused = None, False
    _forget_failure(state)
    if event.changes:
        now = state.generation
        begun = any(g == now for g, _ in (*state.candidates, *state.layers))
        begun = begun or any(generation == now for _, _, generation in state.evaluations)
        first = 0 if state.started is None else now + 1 if begun else now
        state.eras = [era for era in state.eras if era[0] < first] + [(first, event.config)]
        if event.strategy is not None:
            before = [one for one in state.strategies if one[0] < first]
            state.strategies = [*before, (first, event.strategy)]
        told = canonical_json({"config": event.config.model_dump(mode="json")})
        state.lineage.append((_SETTINGS.format(event.run), events.Submitted.type, told))


#: Lineage key of a fork's changed settings.
_SETTINGS = "{}/submitted"


def _forget_failure(state: RunState) -> None:
    """Remove the run's failure from the state and from the lineage."""
    state.failed = None
    state.lineage[:] = [entry for entry in state.lineage if entry[1] != events.Failed.type]


def _on_retried(state: RunState, _event: events.Retried) -> None:
    forgive(state)
    state.retries += 1
    _forget_failure(state)


def forgive(state: RunState) -> None:
    """Stop counting the failures and deaths so far, and empty the quarantine."""
    state.forgiven = {task: failure.attempt for task, failure in state.failures.items()}
    state.forgiven_deaths = {task: death.attempt for task, death in state.deaths.items()}
    state.quarantined = {}


def _on_paused(state: RunState, _event: events.Paused) -> None:
    state.paused = True


def _on_imported(state: RunState, event: events.Imported) -> None:
    """Give the run to the importer, and pause it until the importer resumes it."""
    assert state.submitted
    changed = {"owner": event.owner, "output_dir": None}
    state.submitted = state.submitted.model_copy(update=changed)
    state.imported, state.paused, state.priority = event, True, 0


def _on_resumed(state: RunState, _event: events.Resumed) -> None:
    state.paused = False


def _on_priority(state: RunState, event: events.PriorityChanged) -> None:
    state.priority = event.priority


def _on_started(state: RunState, event: events.Started) -> None:
    state.started = event
    state.strategies = [(0, event.strategy)]
    for source in (event.base, *event.sources):
        state.recipes[source.recipe_id] = Source(digest=source.digest)
        state.built[source.recipe_id] = (source.digest, source.sketch)


def _on_built(state: RunState, event: events.BaselineBuilt | Candidate) -> None:
    state.recipes[event.recipe_id] = event.recipe
    state.built[event.recipe_id] = (event.digest, event.sketch)
    if isinstance(event, events.BaselineBuilt):
        state.baselines[event.name] = event.recipe_id
    else:
        state.candidates[event.generation, event.slot] = event


def _put(name: str, *key: str) -> Callable[[RunState, Any], None]:
    """Return a handler that puts an event into the dictionary `name`, under its fields `key`."""
    pick = attrgetter(*key)

    def handle(state: RunState, event: Any) -> None:
        getattr(state, name)[pick(event)] = event

    return handle


def _add(name: str) -> Callable[[RunState, Any], None]:
    """Return a handler that adds an event to the list `name`."""
    return lambda state, event: getattr(state, name).append(event)


def _set(name: str) -> Callable[[RunState, Any], None]:
    """Return a handler that sets the attribute `name` to the event."""
    return lambda state, event: setattr(state, name, event)


#: Events that answer tasks of a generation; see `RunState.remembered`.
_COMPLETIONS = (
    events.Seeded, events.Merged, events.Mutated, events.Sampled, events.Crossed, events.LayersChosen,
    events.Evaluated,
)  # fmt: skip

#: Event → the handler that applies it to a state, in place.
_HANDLERS: dict[type[Event], Callable[[RunState, Any], None]] = {
    events.Submitted: _on_submitted,
    events.Forked: _on_forked,
    events.Started: _on_started,
    events.Profiled: _set("profiled"),
    events.BaselineBuilt: _on_built,
    events.Seeded: _on_built,
    events.Merged: _on_built,
    events.Mutated: _on_built,
    events.Sampled: _on_built,
    events.Crossed: _on_built,
    events.LayersChosen: _put("layers", "generation", "slot"),
    events.Evaluated: _put("evaluations", "recipe_id", "slice", "generation"),
    events.GenerationCompleted: _put("generations", "generation"),
    events.DiversityMeasured: _put("diversities", "generation"),
    events.Reseeded: _put("reseeded", "generation"),
    events.ChampionChanged: _add("champions"),
    events.Converged: _set("converged"),
    events.Completed: _set("completed"),
    events.Failed: _set("failed"),
    events.Cancelled: _set("cancelled"),
    events.Paused: _on_paused,
    events.Resumed: _on_resumed,
    events.Retried: _on_retried,
    events.PriorityChanged: _on_priority,
    events.Imported: _on_imported,
    events.Exported: lambda _state, _event: None,
    events.TaskFailed: _put("failures", "task"),
    events.TaskDied: _put("deaths", "task"),
    events.TaskQuarantined: _put("quarantined", "task"),
    events.DivergenceDetected: _add("divergences"),
}


def evolve(state: RunState, event: Event) -> RunState:
    """Return the state after one more event. Pure: the given state is not changed."""
    after = copy(state)
    for slot in fields(RunState):
        value = getattr(state, slot.name)
        if isinstance(value, dict | list):
            setattr(after, slot.name, copy(value))
    handler = _HANDLERS.get(type(event))
    if handler is None:
        raise TypeError(f"{event.type} is not an event of a run")
    after.memory = {}
    take(after, event)
    return after


def take(state: RunState, event: Event, recorded_at: str | None = None) -> None:
    """Apply one more event to the state, in place."""
    handler = _HANDLERS.get(type(event))
    if handler is None:
        raise TypeError(f"{event.type} is not an event of a run")
    handler(state, event)
    _spend(state, event, recorded_at)
    if not isinstance(event, _COMPLETIONS):
        state.memory.clear()


def absorb(state: RunState, rows: Iterable[Envelope], showing: bool = False) -> RunState:
    """Fold more recorded rows into `state`, in place, and return `state`.

    The rows must follow directly on those folded so far. Raises UnknownEventError for an event
    that a newer version wrote: nothing may be decided without the event. With `showing` such rows
    are skipped, for display only, and `state.skipped` names them.
    """
    if showing:
        rows = _known(state, rows)
    outside, note = lineage.OUTSIDE, state.lineage.append
    for row, event in events.REGISTRY.load_each(rows):
        take(state, event, row.recorded_at)
        if row.type not in outside:
            note((row.key, row.type, row.data))
        elif isinstance(event, events.Forked) and event.changes:  # as recorded, for ever
            config = canonical_json({"config": json.loads(row.data)["config"]})
            state.lineage[-1] = (_SETTINGS.format(event.run), events.Submitted.type, config)
        state.version, state.head, state.place = row.version, row.hash, state.place + 1
    return state


def _spend(state: RunState, event: Event, recorded_at: str | None) -> None:
    """Add to what was spent: the event's cost, and the time since the event before."""
    if -1 not in state.closed and isinstance(event, Candidate | events.LayersChosen):
        state.closed[-1] = state.spent
    state.spent = budget.after(state.spent, event)
    # No process worked on the run before one of these events.
    waited = isinstance(event, events.Forked | events.Retried | events.Exported | events.Imported)
    if state.clock is not None and recorded_at is not None and not waited:
        wall = state.spent.wall + budget.elapsed(state.clock, recorded_at).total_seconds()
        state.spent = replace(state.spent, wall=wall)
    counts = state.started is not None and not state.paused
    state.clock = recorded_at if counts else None
    if isinstance(event, events.GenerationCompleted):
        state.closed[event.generation] = state.spent


def _known(state: RunState, rows: Iterable[Envelope]) -> Iterator[Envelope]:
    """Yield the rows that this version knows; count the others and note them in the state."""
    for row in rows:
        if events.REGISTRY.knows(row):
            yield row
        else:
            state.skipped.append(f"{row.type}@{row.schema}")
            state.version, state.head, state.place = row.version, row.hash, state.place + 1


def fold(rows: Iterable[Envelope], showing: bool = False) -> RunState:
    """Return the state after these rows, one history from its first event."""
    collects = gc.isenabled()
    gc.disable()  # a fold makes no reference cycles; the collector takes over half of its time
    try:
        return absorb(RunState(), rows, showing)
    finally:
        if collects:
            gc.enable()
