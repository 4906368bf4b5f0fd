"""The state of a run: the fold of its events. Pure; no clock, no I/O.

`evolve` commutes over the completions inside a generation: they go into dictionaries keyed by what
they are about, and nothing depends on which came first.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from events import Envelope, Event, canonical_json
from evomerge import facts, lineage
from evomerge.config import EvoMergeConfig
from evomerge.corpus.documents import Slice
from evomerge.fitness import composite, outcomes
from evomerge.fitness.composite import Components, Fitness, Reference
from evomerge.fitness.outcomes import Draws, Outcomes
from evomerge.recipe import Recipe, Source

#: (recipe id, slice, generation of the draw or None for the whole slice).
EvaluationKey = tuple[str, Slice, int | None]

Candidate = facts.Seeded | facts.Merged | facts.Mutated


@dataclass
class RunState:
    """Everything that is known about a run after some prefix of its log."""

    #: Of the run's own stream.
    version: int = 0
    head: str = "0" * 64
    #: Events of the whole history, those before a fork included.
    place: int = 0
    run: str = ""
    #: As submitted; after a fork, with the settings as changed.
    submitted: facts.Submitted | None = None
    forked: facts.Forked | None = None
    #: (generation, settings that its candidates are proposed and drawn by from there on).
    eras: list[tuple[int, EvoMergeConfig]] = field(default_factory=list)
    started: facts.Started | None = None
    profiled: facts.Profiled | None = None
    recipes: dict[str, Recipe] = field(default_factory=dict)
    #: Recipe id → (digest of the weights, sketch).
    built: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: Baseline name → recipe id.
    baselines: dict[str, str] = field(default_factory=dict)
    #: (generation, slot) → what was built there.
    candidates: dict[tuple[int, int], Candidate] = field(default_factory=dict)
    #: (generation, slot) → the choice.
    layers: dict[tuple[int, int], facts.LayersChosen] = field(default_factory=dict)
    evaluations: dict[EvaluationKey, facts.Evaluated] = field(default_factory=dict)
    generations: dict[int, facts.GenerationCompleted] = field(default_factory=dict)
    diversities: dict[int, facts.DiversityMeasured] = field(default_factory=dict)
    reseeded: dict[int, facts.Reseeded] = field(default_factory=dict)
    champions: list[facts.ChampionChanged] = field(default_factory=list)
    converged: facts.Converged | None = None
    completed: facts.Completed | None = None
    failed: facts.Failed | None = None
    cancelled: facts.Cancelled | None = None
    paused: bool = False
    priority: int = 0
    #: Task → its last failure.
    failures: dict[str, facts.TaskFailed] = field(default_factory=dict)
    #: Task → attempts that do not count any more, and how often somebody asked for that.
    forgiven: dict[str, int] = field(default_factory=dict)
    retries: int = 0
    #: Task → the last death of a process that did it; deaths that do not count any more.
    deaths: dict[str, facts.TaskDied] = field(default_factory=dict)
    forgiven_deaths: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, facts.TaskQuarantined] = field(default_factory=dict)
    divergences: list[facts.DivergenceDetected] = field(default_factory=list)
    #: Events of a newer version that were passed over: such a state is to look at only.
    skipped: list[str] = field(default_factory=list)
    #: (idempotency key, type, data) of what must not depend on luck; a later one replaces an earlier
    #: one whose key differs in the run's name only.
    lineage: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Nothing more will happen."""
        return bool(self.completed or self.failed or self.cancelled)

    @property
    def status(self) -> str:
        """One word for lists."""
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
        """SHA-256 over what a crashed and an undisturbed run share, in an order of its own.

        Over the data as recorded, so that it stays what it was when schemas grow.
        """
        entries = {
            key.partition("/")[2]: lineage.entry(type_, data) for key, type_, data in self.lineage
        }
        return hashlib.sha256(canonical_json(entries).encode()).hexdigest()

    def settings(self, generation: int) -> EvoMergeConfig:
        """What the candidates of a generation are proposed and drawn by."""
        return [config for first, config in self.eras if first <= generation][-1]

    # ---- measuring -------------------------------------------------------------------------

    def draws(self, slice_: Slice, generation: int | None) -> Draws:
        """What is scored: the generation's own draw of a slice, or all of it."""
        assert self.started
        pools = self.started.pools[slice_]
        if generation is None:
            return outcomes.whole(pools)
        config = self.settings(generation)
        sizes = outcomes.Sizes(
            windows=config.search_windows,
            questions=config.search_questions,
            problems=config.search_problems,
        )
        return outcomes.draw(pools, sizes, config.seed, "draw", slice_, generation)

    def components(self, key: EvaluationKey) -> Components | None:
        """What was measured; a draw is taken from the whole slice where that was measured."""
        event = self.evaluations.get(key)
        if event is not None:
            return event.components
        seen = self.outcomes(key)
        return None if seen is None else self._of_these(seen)

    def outcomes(self, key: EvaluationKey) -> Outcomes | None:
        """Item by item, or None where it was not measured."""
        recipe_id, slice_, generation = key
        if event := self.evaluations.get(key):
            return event.outcomes
        if event := self.evaluations.get((recipe_id, slice_, None)):
            return outcomes.pick(event.outcomes, self.draws(slice_, generation))
        return None

    def reference(
        self, slice_: Slice, generation: int | None, scored: Draws | None = None
    ) -> Reference | None:
        """The best source in each component; None until every source was measured.

        On what was `scored`, where that was less than the draw.
        """
        assert self.started
        assert self.submitted
        if scored is None:
            found = [
                self.components((s.recipe_id, slice_, generation)) for s in self.started.sources
            ]
        else:
            found = [self._of_these(seen) for seen in self.sources_on(slice_, scored).values()]
        known = [c for c in found if c is not None]
        weighed = self.submitted.config.fitness_weights.domains
        return composite.reference(known, weighed) if known else None

    def _of_these(self, seen: Outcomes) -> Components | None:
        assert self.started
        cost = self.started.cost
        return composite.components(seen, cost.flops_per_token, cost.bytes)

    def sources_on(self, slice_: Slice, draws: Draws) -> dict[str, Outcomes]:
        """Name → what each source's evaluation of the whole slice says of these items."""
        assert self.started
        found: dict[str, Outcomes] = {}
        for source in self.started.sources:
            if event := self.evaluations.get((source.recipe_id, slice_, None)):
                name = source.name  # two folders may have one
                name += f" {source.recipe_id[:12]}" if name in found else ""
                found[name] = outcomes.pick(event.outcomes, draws)
        return found

    def is_source(self, recipe_id: str) -> bool:
        """Whether it is one of the run's sources."""
        assert self.started
        return recipe_id in {s.recipe_id for s in self.started.sources}

    def judge(
        self,
        recipe_id: str,
        slice_: Slice,
        generation: int | None,
        measured: Components | None,
        scored: Draws | None = None,
    ) -> tuple[Reference | None, Fitness | None]:
        """The reference to judge something just measured by, and its fitness.

        A source is measured before there is a reference: its fitness follows from the log later.
        """
        assert self.submitted
        if self.is_source(recipe_id):
            return None, None
        best, config = self.reference(slice_, generation, scored), self.submitted.config
        if measured is None or best is None:
            return best, None
        raw = config.normalise == "none"
        return best, composite.fitness(measured, best, config.fitness_weights, raw=raw)

    def fitness(self, key: EvaluationKey) -> Fitness | None:
        """The fitness of an evaluation; a source's is computed from the sources' reference."""
        event = self.evaluations.get(key)
        if event is not None and event.fitness is not None:
            return event.fitness
        measured, best = self.components(key), self.reference(key[1], key[2])
        if measured is None or best is None or self.submitted is None:
            return None
        config = self.submitted.config
        raw = config.normalise == "none"
        return composite.fitness(measured, best, config.fitness_weights, raw=raw)


def _on_submitted(state: RunState, event: facts.Submitted) -> None:
    state.submitted, state.run = event, event.run
    state.priority = event.priority
    state.eras = [(0, event.config)]


def _on_forked(state: RunState, event: facts.Forked) -> None:
    """The run becomes another; what it tried in vain is forgotten."""
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
        told = canonical_json({"config": event.config.model_dump(mode="json")})
        state.lineage.append((_SETTINGS.format(event.run), facts.Submitted.type, told))


#: What a fork's changed settings are noted as.
_SETTINGS = "{}/submitted"


def _forget_failure(state: RunState) -> None:
    """The run has not failed any more."""
    state.failed = None
    state.lineage[:] = [entry for entry in state.lineage if entry[1] != facts.Failed.type]


def _on_retried(state: RunState, _event: facts.Retried) -> None:
    forgive(state)
    state.retries += 1
    _forget_failure(state)


def forgive(state: RunState) -> None:
    """Let what has failed or died so far not count any more, and nothing be in quarantine."""
    state.forgiven = {task: failure.attempt for task, failure in state.failures.items()}
    state.forgiven_deaths = {task: death.attempt for task, death in state.deaths.items()}
    state.quarantined = {}


def _on_paused(state: RunState, _event: facts.Paused) -> None:
    state.paused = True


def _on_resumed(state: RunState, _event: facts.Resumed) -> None:
    state.paused = False


def _on_priority(state: RunState, event: facts.PriorityChanged) -> None:
    state.priority = event.priority


def _on_started(state: RunState, event: facts.Started) -> None:
    state.started = event
    for source in (event.base, *event.sources):
        state.recipes[source.recipe_id] = Source(digest=source.digest)
        state.built[source.recipe_id] = (source.digest, source.sketch)


def _on_built(state: RunState, event: facts.BaselineBuilt | Candidate) -> None:
    state.recipes[event.recipe_id] = event.recipe
    state.built[event.recipe_id] = (event.digest, event.sketch)
    if isinstance(event, facts.BaselineBuilt):
        state.baselines[event.name] = event.recipe_id
    else:
        state.candidates[event.generation, event.slot] = event


def _put(name: str, *key: str) -> Callable[[RunState, Any], None]:
    """A handler that puts an event into the dictionary `name`, under its fields `key`."""
    pick = attrgetter(*key)

    def handle(state: RunState, event: Any) -> None:
        getattr(state, name)[pick(event)] = event

    return handle


def _add(name: str) -> Callable[[RunState, Any], None]:
    """A handler that adds an event to the list `name`."""
    return lambda state, event: getattr(state, name).append(event)


def _set(name: str) -> Callable[[RunState, Any], None]:
    """A handler that remembers an event as `name`."""
    return lambda state, event: setattr(state, name, event)


#: Event → what it does to a state, in place.
_HANDLERS: dict[type[Event], Callable[[RunState, Any], None]] = {
    facts.Submitted: _on_submitted,
    facts.Forked: _on_forked,
    facts.Started: _on_started,
    facts.Profiled: _set("profiled"),
    facts.BaselineBuilt: _on_built,
    facts.Seeded: _on_built,
    facts.Merged: _on_built,
    facts.Mutated: _on_built,
    facts.LayersChosen: _put("layers", "generation", "slot"),
    facts.Evaluated: _put("evaluations", "recipe_id", "slice", "generation"),
    facts.GenerationCompleted: _put("generations", "generation"),
    facts.DiversityMeasured: _put("diversities", "generation"),
    facts.Reseeded: _put("reseeded", "generation"),
    facts.ChampionChanged: _add("champions"),
    facts.Converged: _set("converged"),
    facts.Completed: _set("completed"),
    facts.Failed: _set("failed"),
    facts.Cancelled: _set("cancelled"),
    facts.Paused: _on_paused,
    facts.Resumed: _on_resumed,
    facts.Retried: _on_retried,
    facts.PriorityChanged: _on_priority,
    facts.TaskFailed: _put("failures", "task"),
    facts.TaskDied: _put("deaths", "task"),
    facts.TaskQuarantined: _put("quarantined", "task"),
    facts.DivergenceDetected: _add("divergences"),
}


def evolve(state: RunState, event: Event) -> RunState:
    """The state after one more event. Pure: the given state is not changed."""
    after = copy(state)
    for slot in fields(RunState):
        value = getattr(state, slot.name)
        if isinstance(value, dict | list):
            setattr(after, slot.name, copy(value))
    handler = _HANDLERS.get(type(event))
    if handler is None:
        raise TypeError(f"{event.type} is not an event of a run")
    handler(after, event)
    return after


def absorb(state: RunState, rows: Iterable[Envelope], showing: bool = False) -> RunState:
    """Fold more recorded rows into `state`, in place, and return it. Rows must follow on.

    Raises UnknownEventError for what a newer version wrote: nothing may be decided without it. To show
    a run, such rows may be skipped; the state says which.
    """
    if showing:
        rows = _known(state, rows)
    handlers, outside, note = _HANDLERS, lineage.OUTSIDE, state.lineage.append
    for row, event in facts.REGISTRY.load_each(rows):
        handler = handlers.get(type(event))
        if handler is None:
            raise TypeError(f"{row.type} is not an event of a run")
        handler(state, event)
        if row.type not in outside:
            note((row.key, row.type, row.data))
        elif isinstance(event, facts.Forked) and event.changes:  # as recorded, for ever
            config = canonical_json({"config": json.loads(row.data)["config"]})
            state.lineage[-1] = (_SETTINGS.format(event.run), facts.Submitted.type, config)
        state.version, state.head, state.place = row.version, row.hash, state.place + 1
    return state


def _known(state: RunState, rows: Iterable[Envelope]) -> Iterator[Envelope]:
    """The rows that this version knows; the others are counted and noted."""
    for row in rows:
        if facts.REGISTRY.knows(row):
            yield row
        else:
            state.skipped.append(f"{row.type}@{row.schema}")
            state.version, state.head, state.place = row.version, row.hash, state.place + 1


def fold(rows: Iterable[Envelope], showing: bool = False) -> RunState:
    """The state after these rows of one history, from the first."""
    collects = gc.isenabled()
    gc.disable()  # a fold makes no cycles; looking for some takes more than half of its time
    try:
        return absorb(RunState(), rows, showing)
    finally:
        if collects:
            gc.enable()
