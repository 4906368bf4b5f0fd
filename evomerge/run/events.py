"""Events of a merging run: what happened, in the past tense; versioned and never rewritten.

Values that must not depend on luck (recipes, digests, scores) and values that may (seconds, who,
when) are in separate fields; `runs.record.events.LUCK` names the latter. What every kind of run has
is in `runs/record/events.py`.
"""

from __future__ import annotations

from typing import Any, Literal

from agent_forge.evaluation.data.outcomes import DomainOutcomes, Draw, Pool
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.measures.bootstrap import Comparison
from agent_forge.events import Event
from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.fitness.composite import Components, Fitness, Reference
from agent_forge.evomerge.recipes.recipe import Recipe
from agent_forge.runs.event_types import Count, Digest, EventPart, ModelReference, Profile, SourceRecord
from agent_forge.runs.record import events as common
from agent_forge.runs.record.device_setting import on_cpu
from agent_forge.runs.record.events import MOST_PRIORITY as MOST_PRIORITY
from agent_forge.runs.record.events import Cancelled as Cancelled
from agent_forge.runs.record.events import Described as Described
from agent_forge.runs.record.events import DivergenceDetected as DivergenceDetected
from agent_forge.runs.record.events import Exported as Exported
from agent_forge.runs.record.events import Failed as Failed
from agent_forge.runs.record.events import Imported as Imported
from agent_forge.runs.record.events import Paused as Paused
from agent_forge.runs.record.events import PriorityChanged as PriorityChanged
from agent_forge.runs.record.events import Quarantine as Quarantine
from agent_forge.runs.record.events import Resumed as Resumed
from agent_forge.runs.record.events import Retried as Retried
from agent_forge.runs.record.events import TaskDied as TaskDied
from agent_forge.runs.record.events import TaskFailed as TaskFailed
from agent_forge.runs.record.events import TaskQuarantined as TaskQuarantined
from agent_forge.runs.record.events import without_volatile as without_volatile
from agent_forge.weights.cost import Cost, Speed


class Rival(EventPart):
    """One source or baseline, and the champion's lead over it on the test slice."""

    name: str
    kind: Literal["base", "source", "baseline"]
    recipe_id: str
    scalar: float | None
    #: None if the rival has no fitness.
    lead: Comparison | None


#: Types of the events that record a build.
BUILT = ("baseline_built", "seeded", "merged", "mutated", "sampled", "crossed")

Reason = Literal["generations", "plateau", "evaluations", "items", "hours", "device_hours"]


class Submitted(common.Submitted):
    """A merging run was asked for."""

    schema_version = 2

    config: EvoMergeConfig
    sources: tuple[ModelReference, ...]
    #: None: the first source is the base.
    base: ModelReference | None
    #: Files and folders; empty: the built-in corpus.
    data: tuple[str, ...]


class Forked(common.Forked):
    """A merging run was branched from another."""

    schema_version = 2

    config: EvoMergeConfig
    #: The version of the strategy that decides from the fork on; None: the parent's.
    strategy: str | None = None


class Started(common.Started):
    """Sources, data and profile were read and pinned."""

    schema_version = 3

    sources: tuple[SourceRecord, ...]
    base: SourceRecord
    tied: bool
    blocks: int
    cost: Cost
    context: int
    data_digest: Digest
    pools: dict[Slice, dict[str, Pool]]
    profile: Profile
    #: The strategy and its version that decide.
    strategy: str
    #: Why problems that run code are not measured; empty if they are, or if the data has none.
    not_run: str = ""
    #: The cost of one more block; None for architectures without paths.
    block_cost: Cost | None = None
    #: True if questions' continuations of all lengths share forward passes, which gives other bits than
    #: if those of one length do, as in runs that were started before.
    together: bool = False
    #: True if a pass writes as many replies to problems as its tokens allow; False: fewer if the
    #: vocabulary is large, as in runs that were started before.
    many_replies: bool = False


class Profiled(Event):
    """Speed and memory of the architecture were measured, once."""

    type = "profiled"
    seconds: float
    speed: Speed


class _Built(Event):
    recipe_id: str
    recipe: Recipe
    digest: Digest
    sketch: str
    seconds: float


class BaselineBuilt(_Built):
    """A fixed merge to compare with was built. It takes no slot."""

    type = "baseline_built"
    schema_version = 2

    name: str


class _Candidate(_Built):
    schema_version = 2

    generation: Count
    slot: Count


class _Child(_Candidate):
    parents: tuple[str, ...]


class Seeded(_Candidate):
    """A candidate of generation 0, or a random pipeline over the sources, was built."""

    type = "seeded"


class Merged(_Child):
    """A merge of three losers was built."""

    type = "merged"


class Mutated(_Child):
    """A mutant of an elite was built."""

    type = "mutated"


class Sampled(_Candidate):
    """A point of a strategy's distribution, or its mean, was built."""

    type = "sampled"


class Crossed(_Child):
    """A child of two candidates' genes was built."""

    type = "crossed"


def candidate(kind: str, parents: tuple[str, ...], **fields: Any) -> Event:
    """Return the event of a built candidate of a proposal's kind; only some kinds have parents."""
    if kind in ("seeded", "sampled"):
        return (Seeded if kind == "seeded" else Sampled)(**fields)
    kinds = {"merged": Merged, "mutated": Mutated, "crossed": Crossed}
    return kinds[kind](parents=parents, **fields)


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


class Evaluated(Event):
    """A model was measured on a draw of a slice."""

    type = "evaluated"
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


class DiversityMeasured(Event):
    """Diversity of an evaluated population."""

    type = "diversity_measured"

    generation: Count
    diversity: float
    level: Literal["healthy", "low", "critical"]


class GenerationCompleted(Event):
    """Every candidate of a generation was measured and ranked."""

    type = "generation_completed"

    generation: Count
    #: Recipe ids, best first.
    ranking: tuple[str, ...]
    #: Their fitness on the generation's draw of the search slice.
    scores: tuple[float | None, ...]


class ChampionChanged(Event):
    """A candidate is better, on the selection slice, than the champion before."""

    type = "champion_changed"

    generation: Count
    recipe_id: str
    previous: str | None
    score: float


class Reseeded(Event):
    """Diversity was critical: some slots of the next generation are new random pipelines."""

    type = "reseeded"

    generation: Count
    slots: tuple[Count, ...]
    diversity: float


class Converged(Event):
    """The search has ended; the test slice comes next."""

    type = "converged"
    generation: Count
    reason: Reason


class Completed(common.Completed):
    """The run has ended with a champion."""

    champion: str
    digest: Digest
    generations: Count
    test: Fitness
    rivals: tuple[Rival, ...]


def _earlier(data: dict[str, Any]) -> dict[str, object]:
    """Return the data (dict) of schema 2: earlier runs lacked `skills`, and were for the CPU."""
    data = on_cpu(data)
    return {**data, "config": {**data["config"], "skills": "pooled"}}


#: Events with a recipe of a merge. In schema 2, recipes know two merge methods more.
RECIPES = (BaselineBuilt, Seeded, Merged, Mutated, Sampled, Crossed)

REGISTRY = common.registry(
    (
        Submitted,
        Forked,
        Started,
        Profiled,
        BaselineBuilt,
        Seeded,
        Merged,
        Mutated,
        Sampled,
        Crossed,
        LayersChosen,
        Evaluated,
        DiversityMeasured,
        GenerationCompleted,
        ChampionChanged,
        Reseeded,
        Converged,
        Completed,
    ),
    {
        (Submitted.type, 1): _earlier,
        (Forked.type, 1): _earlier,
        (Started.type, 1): dict,
        (Started.type, 2): dict,
        **{(event.type, 1): dict for event in RECIPES},
    },
)
