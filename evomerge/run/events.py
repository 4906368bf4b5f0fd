"""Events of a run: what happened, in the past tense; versioned and never rewritten.

Values that must not depend on luck (recipes, digests, scores) and values that may (seconds, who,
when) are in separate fields. `LUCK` names the latter, and the lineage digest leaves them out.
"""

from __future__ import annotations

from typing import Any, Literal

from evaluation.data.outcomes import DomainOutcomes, Draw, Pool
from evaluation.data.slices import Slice
from events import Event, Registry
from evomerge.config import EvoMergeConfig
from evomerge.fitness.composite import Components, Fitness, Reference
from evomerge.recipes.recipe import Recipe
from evomerge.run import upcasters
from evomerge.run.event_types import Rival
from runs import user_events as _wishes
from runs.event_types import ModelReference, Profile, SourceRecord
from runs.system.digests import Digest
from runs.system.integers import Count, Signed
from runs.user_events import Cancelled as Cancelled
from runs.user_events import Exported as Exported
from runs.user_events import Imported as Imported
from runs.user_events import Paused as Paused
from runs.user_events import PriorityChanged as PriorityChanged
from runs.user_events import Resumed as Resumed
from runs.user_events import Retried as Retried
from weights.cost import Cost, Speed

REGISTRY = Registry()

#: Fields that may differ between a crashed and an undisturbed run.
LUCK = frozenset({"seconds"})

#: Priorities go from minus `MOST_PRIORITY` to `MOST_PRIORITY`.
MOST_PRIORITY = 1_000_000

#: Types of the events that record a build.
BUILT = ("baseline_built", "seeded", "merged", "mutated", "sampled", "crossed")

Reason = Literal["generations", "plateau", "evaluations", "items", "hours", "device_hours"]
Quarantine = Literal["fail", "worst-fitness"]


@REGISTRY.event
class Submitted(Event):
    """A run was asked for."""

    type = "submitted"
    schema_version = 11

    run: str
    owner: str
    config: EvoMergeConfig
    sources: tuple[ModelReference, ...]
    #: None: the first source is the base.
    base: ModelReference | None
    #: Files and folders; empty: the built-in corpus.
    data: tuple[str, ...]
    #: Where the champion's folder is to be written.
    output_dir: str | None = None
    #: Of one owner's runs, those with the highest priority go first.
    priority: Signed = 0
    #: Labels that a worker must offer to take the run's tasks.
    labels: tuple[str, ...] = ()
    #: What happens when a task has killed its process three times. fail: the run fails;
    #: worst-fitness: the run goes on without the task's result, which counts as the worst fitness.
    quarantine: Quarantine = "fail"
    reason: str | None = None


@REGISTRY.event
class Forked(Event):
    """A run was branched from another: what that one had recorded up to a place is its past."""

    type = "forked"
    schema_version = 9

    run: str
    owner: str
    #: The run whose stream holds the last event of the common past, its version there and its hash.
    parent: str
    version: Count
    head: str
    #: Settings that were changed, then all settings after the change.
    changes: dict[str, Any]
    config: EvoMergeConfig
    output_dir: str | None = None
    #: The version of the strategy that decides from the fork on; None: the parent's.
    strategy: str | None = None
    reason: str | None = None


@REGISTRY.event
class Started(Event):
    """Sources, data and profile were read and pinned."""

    type = "started"
    schema_version = 7

    sources: tuple[SourceRecord, ...]
    base: SourceRecord
    tied: bool
    blocks: int
    cost: Cost
    context: int
    data_digest: Digest
    pools: dict[Slice, dict[str, Pool]]
    profile: Profile
    warnings: tuple[str, ...]
    #: The strategy and its version that decide.
    strategy: str
    #: Why problems that run code are not measured; empty if they are, or if the data has none.
    not_run: str = ""
    #: The cost of one more block; None in logs that are older than paths.
    block_cost: Cost | None = None


@REGISTRY.event
class Profiled(Event):
    """Speed and memory of the architecture were measured, once."""

    type = "profiled"
    schema_version = 2

    seconds: float
    speed: Speed


class _Built(Event):
    schema_version = 3

    recipe_id: str
    recipe: Recipe
    digest: Digest
    sketch: str
    seconds: float


@REGISTRY.event
class BaselineBuilt(_Built):
    """A static merge to compare with was built. It takes no slot."""

    type = "baseline_built"

    name: str


@REGISTRY.event
class Seeded(_Built):
    """A candidate of generation 0, or a random pipeline over the sources, was built."""

    type = "seeded"

    generation: Count
    slot: Count


@REGISTRY.event
class Merged(_Built):
    """A merge of three losers was built."""

    type = "merged"

    generation: Count
    slot: Count
    parents: tuple[str, ...]


@REGISTRY.event
class Mutated(_Built):
    """A mutant of an elite was built."""

    type = "mutated"

    generation: Count
    slot: Count
    parents: tuple[str, ...]


@REGISTRY.event
class Sampled(_Built):
    """A point of a strategy's distribution, or its mean, was built."""

    type = "sampled"
    schema_version = 2

    generation: Count
    slot: Count


@REGISTRY.event
class Crossed(_Built):
    """A child of two candidates' genes was built."""

    type = "crossed"
    schema_version = 2

    generation: Count
    slot: Count
    parents: tuple[str, ...]


def candidate(kind: str, parents: tuple[str, ...], **fields: Any) -> Event:
    """Return the event of a built candidate of a proposal's kind; only some kinds have parents."""
    if kind in ("seeded", "sampled"):
        return (Seeded if kind == "seeded" else Sampled)(**fields)
    kinds = {"merged": Merged, "mutated": Mutated, "crossed": Crossed}
    return kinds[kind](parents=parents, **fields)


@REGISTRY.event
class LayersChosen(Event):
    """Layer fitness was measured and a frankenmerge choice made."""

    type = "layers_chosen"

    generation: Count
    slot: Count
    #: Id of the proposal, whose layers were open.
    proposal: str
    measure: str
    #: gains[block][input], nats a token.
    scores: tuple[tuple[float, ...], ...]
    layers: tuple[int, ...]
    seconds: float


@REGISTRY.event
class Evaluated(Event):
    """A model was measured on a draw of a slice."""

    type = "evaluated"
    schema_version = 2

    recipe_id: str
    slice: Slice
    #: The generation whose draw it was; None: the whole slice.
    generation: Count | None
    outcomes: dict[str, DomainOutcomes]
    #: None if a value was NaN or Inf: then there is no fitness.
    components: Components | None
    reference: Reference | None
    fitness: Fitness | None
    why_none: str | None = None
    #: Why the evaluation was stopped early, and the items scored until then; None: all were scored.
    stopped: str | None = None
    scored: dict[str, Draw] | None = None
    seconds: float


@REGISTRY.event
class DiversityMeasured(Event):
    """Diversity of an evaluated population."""

    type = "diversity_measured"

    generation: Count
    diversity: float
    level: Literal["healthy", "low", "critical"]


@REGISTRY.event
class GenerationCompleted(Event):
    """Every candidate of a generation was measured and ranked."""

    type = "generation_completed"

    generation: Count
    #: Recipe ids, best first.
    ranking: tuple[str, ...]
    #: Their fitness on the generation's draw of the search slice.
    scores: tuple[float | None, ...]


@REGISTRY.event
class ChampionChanged(Event):
    """A candidate is better, on the selection slice, than the champion before."""

    type = "champion_changed"

    generation: Count
    recipe_id: str
    previous: str | None
    score: float


@REGISTRY.event
class Reseeded(Event):
    """Diversity was critical: some slots of the next generation are new random pipelines."""

    type = "reseeded"

    generation: Count
    slots: tuple[Count, ...]
    diversity: float


@REGISTRY.event
class Converged(Event):
    """The search has ended; the test slice comes next."""

    type = "converged"
    schema_version = 2

    generation: Count
    reason: Reason


@REGISTRY.event
class Completed(Event):
    """The run has ended with a champion."""

    type = "completed"

    champion: str
    digest: Digest
    generations: Count
    test: Fitness
    rivals: tuple[Rival, ...]
    lineage_digest: Digest
    #: Hash of the event before this one: the chain that the result stands on.
    chain_head: str


@REGISTRY.event
class TaskFailed(Event):
    """A task raised an error."""

    type = "task_failed"

    task: str
    attempt: Count
    error: str


@REGISTRY.event
class TaskDied(Event):
    """The process that did a task died, and the one that watched it lives."""

    type = "task_died"

    task: str
    attempt: Count
    #: What ended the process: a signal or an exit code.
    how: str


@REGISTRY.event
class TaskQuarantined(Event):
    """A task has killed too many processes and is not tried again."""

    type = "task_quarantined"

    task: str
    reason: str


@REGISTRY.event
class Failed(Event):
    """The run has ended without a champion."""

    type = "failed"

    reason: str


@REGISTRY.event
class DivergenceDetected(Event):
    """The same task gave two different results: the profile's promise is broken."""

    type = "divergence_detected"

    task: str
    recorded: str
    found: str


for _class in _wishes.WISHES:
    REGISTRY.event(_class)

for (_type, _schema), _upcast in upcasters.UPCASTERS.items():
    REGISTRY.upcaster(_type, _schema)(_upcast)


def luckless(event: Event) -> dict[str, Any]:
    """Return the event's data without the fields that may differ by luck."""
    return {k: v for k, v in event.model_dump(mode="json").items() if k not in LUCK}
