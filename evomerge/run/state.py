"""State of a merging run: the fold of its events, and the budget that ends its search.

Pure; no clock, no I/O. What every kind of run has is in `runs/kinds/state.py`.

Budgets count evaluations and items of the search and of the selection slice, the sources' included.
Hours are those between `started` and the newest event, without the time that the run was paused.
Device hours are the recorded durations of tasks. Both kinds of hours depend on the machine: of two
runs with such a budget, one may go further than the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from typing_extensions import override

from agent_forge.evaluation.data.outcomes import Outcomes
from agent_forge.events import Envelope, Event, Registry
from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.recipes.recipe import Recipe, Source
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.scores import EvaluationKey, EvaluationScores
from agent_forge.runs.kinds import state as common
from agent_forge.runs.kinds.state import Handler, State, add, assign, fold_into, put
from agent_forge.runs.record.lineage import SpentTime, device

SECONDS = 3600.0


@dataclass(frozen=True)
class SearchSpent(SpentTime):
    """The sums of what a merging run has spent, after some prefix of its log."""

    evaluations: int = 0
    #: Windows, questions and problems that were scored.
    items: int = 0

    def minus(self, other: SearchSpent) -> SearchSpent:
        """Return the sums of what was spent since the earlier sums `other`."""
        return SearchSpent(
            device=self.device - other.device,
            wall=self.wall - other.wall,
            evaluations=self.evaluations - other.evaluations,
            items=self.items - other.items,
        )


def items(outcomes: Outcomes) -> int:
    """Return the number of windows, questions and problems that were scored."""
    return sum(len(o.nll) + len(o.right) + len(o.solved) for o in outcomes.values())


def after(spent: SearchSpent, event: object) -> SearchSpent:
    """Return the sums with one more event; the caller adds the time by the clock."""
    spent = replace(spent, device=spent.device + device(event))
    if not isinstance(event, events.Evaluated) or event.slice not in ("search", "selection"):
        return spent
    return replace(spent, evaluations=spent.evaluations + 1, items=spent.items + items(event.outcomes))


def exhausted(
    config: EvoMergeConfig, spent: SearchSpent, last: SearchSpent, report: float = 0.0
) -> events.Reason | None:
    """Return the name of the budget that another generation like the last would exceed, or None.

    `report` is the seconds that the final report will take, for `budget_hours`.
    """
    limits: list[tuple[events.Reason, float | None, float]] = [
        ("evaluations", config.max_evaluations, spent.evaluations + last.evaluations),
        ("items", config.max_items, spent.items + last.items),
        ("hours", _seconds(config.max_hours), spent.wall + last.wall),
        ("hours", _seconds(config.budget_hours), spent.wall + last.wall + report),
        ("device_hours", _seconds(config.max_device_hours), spent.device + last.device),
    ]
    return next((name for name, limit, need in limits if limit is not None and need > limit), None)


def _seconds(hours: float | None) -> float | None:
    return None if hours is None else hours * SECONDS


Candidate = events.Seeded | events.Merged | events.Mutated | events.Sampled | events.Crossed


@dataclass
class RunState(EvaluationScores, State):
    """Everything that is known about a merging run after some prefix of its log."""

    kind: ClassVar[str] = "evomerge"
    registry: ClassVar[Registry] = events.REGISTRY
    outside: ClassVar[frozenset[str]] = frozenset({events.Profiled.type})

    #: As submitted; after a fork, with the settings as changed.
    submitted: events.Submitted | None = None
    forked: events.Forked | None = None
    started: events.Started | None = None
    completed: events.Completed | None = None
    #: (generation, settings by which candidates are proposed and items drawn from there on).
    eras: list[tuple[int, EvoMergeConfig]] = field(default_factory=list)
    #: (generation, version of the strategy that decides from there on).
    strategies: list[tuple[int, str]] = field(default_factory=list)
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
    #: What was spent until now; then, until each generation was closed (−1: before generation 0).
    spent: SearchSpent = field(default_factory=SearchSpent)
    closed: dict[int, SearchSpent] = field(default_factory=dict)

    @property
    def champion(self) -> str | None:
        """The champion's recipe id; None if there is no champion yet."""
        return self.champions[-1].recipe_id if self.champions else None

    @property
    def generation(self) -> int:
        """The number of the generation that is being worked on."""
        return len(self.generations)

    @override
    def settings(self, generation: int) -> EvoMergeConfig:
        return [config for first, config in self.eras if first <= generation][-1]

    def version_of(self, generation: int) -> str:
        """Return the strategy that decides a generation with its version: "elite-loser@1"."""
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

    @override
    def spend(self, event: Event) -> None:
        if -1 not in self.closed and isinstance(event, Candidate | events.LayersChosen):
            self.closed[-1] = self.spent
        self.spent = after(self.spent, event)

    @override
    def take(self, event: Event, recorded_at: str | None = None, key: str = "") -> None:
        """Apply one more event, in place. Raises TypeError for an event of another kind."""
        super().take(event, recorded_at, key)
        if isinstance(event, events.GenerationCompleted):
            self.closed[event.generation] = self.spent

    @override
    def fork_changes(self, event: events.Forked) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        now = self.generation
        begun = any(g == now for g, _ in (*self.candidates, *self.layers))
        begun = begun or any(generation == now for _, _, generation in self.evaluations)
        first = 0 if self.started is None else now + 1 if begun else now
        self.eras = [era for era in self.eras if era[0] < first] + [(first, event.config)]
        if event.strategy is not None:
            before = [strategy for strategy in self.strategies if strategy[0] < first]
            self.strategies = [*before, (first, event.strategy)]


def _on_submitted(state: RunState, event: events.Submitted) -> None:
    common.on_submitted(state, event)
    state.eras = [(0, event.config)]


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


#: Events that answer tasks of a generation. They change neither what was asked for in their
#: generation nor, once its ranking is known, its finalists; see `State.remembered`.
RunState.keeping = (
    events.Seeded,
    events.Merged,
    events.Mutated,
    events.Sampled,
    events.Crossed,
    events.LayersChosen,
    events.Evaluated,
)

#: Event → the handler that applies it to a state, in place.
_OWN: dict[type[Event], Handler] = {
    events.Submitted: _on_submitted,
    events.Started: _on_started,
    events.Profiled: assign("profiled"),
    events.BaselineBuilt: _on_built,
    events.Seeded: _on_built,
    events.Merged: _on_built,
    events.Mutated: _on_built,
    events.Sampled: _on_built,
    events.Crossed: _on_built,
    events.LayersChosen: put("layers", "generation", "slot"),
    events.Evaluated: put("evaluations", "recipe_id", "slice", "generation"),
    events.GenerationCompleted: put("generations", "generation"),
    events.DiversityMeasured: put("diversities", "generation"),
    events.Reseeded: put("reseeded", "generation"),
    events.ChampionChanged: add("champions"),
    events.Converged: assign("converged"),
}

RunState.handlers = (
    common.handlers(events.Submitted, events.Forked, events.Started, events.Completed) | _OWN
)


def fold(rows: Iterable[Envelope], showing: bool = False) -> RunState:
    """Return the state after these rows, one history of a merging run from its first event."""
    return fold_into(RunState(), rows, showing)
