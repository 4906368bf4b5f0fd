"""The interface of a search strategy, its proposals, and its input: what earlier generations measured.

A strategy keeps no state: its proposals are a pure function of the past that it is given. Learned
state (a distribution, a bandit's counts) is rebuilt from the recorded generations each time, with
random numbers from keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_forge.evaluation.data.outcomes import Outcomes
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.fitness.composite import Components, Fitness
from agent_forge.evomerge.recipes.recipe import Flow, Grouped, Mutate, Pipeline, Recipe
from agent_forge.evomerge.search_settings import SearchSettings

#: (recipe id, slice, generation of the draw or None for the whole slice).
EvaluationKey = tuple[str, Slice, int | None]

#: How a proposal came about.
Kind = Literal["seeded", "merged", "mutated", "sampled", "crossed"]


@dataclass(frozen=True)
class Proposal:
    """A recipe proposed for a slot. The layers of a frankenmerge may still be open."""

    slot: int
    kind: Kind
    recipe: Pipeline | Grouped | Flow | Mutate
    parents: tuple[str, ...] = ()

    @property
    def pipeline(self) -> Pipeline | Grouped | Flow | None:
        """The merge that the recipe itself states; None for a mutation without one."""
        return self.recipe.pipeline if isinstance(self.recipe, Mutate) else self.recipe

    def with_layers(self, layers: tuple[int, ...]) -> Proposal:
        """Return the proposal with these layers in place of its open ones."""
        pipeline = self.pipeline
        assert isinstance(pipeline, Pipeline)
        genes = pipeline.genes.model_copy(update={"layers": layers})
        done = pipeline.model_copy(update={"genes": genes})
        if isinstance(self.recipe, Mutate):
            done = self.recipe.model_copy(update={"pipeline": done})
        return Proposal(self.slot, self.kind, done, self.parents)


@dataclass(frozen=True)
class SourceFamily:
    """The sources' recipe ids, the base that they are merged on, and their number of blocks."""

    sources: tuple[str, ...]
    base: str
    blocks: int


@dataclass(frozen=True)
class Generation:
    """A generation whose candidates were measured on its draw."""

    number: int
    #: Slot → recipe id; a slot in quarantine is missing.
    slots: Mapping[int, str]
    #: Recipe ids, best first.
    ranking: tuple[str, ...]
    scores: tuple[float | None, ...]
    #: Slot → the recipes that its candidate was bred from.
    parents: Mapping[int, tuple[str, ...]]
    #: Ids of recipes whose evaluation stopped early: their scores are on fewer items.
    dropped: frozenset[str]

    @property
    def fitness(self) -> dict[str, float | None]:
        """Recipe id → score on the draw."""
        return dict(zip(self.ranking, self.scores, strict=True))

    @property
    def places(self) -> dict[str, int]:
        """Recipe id → rank, 0 for the best."""
        return {id_: place for place, id_ in enumerate(self.ranking)}


@dataclass(frozen=True)
class Measurements:
    """Look-ups of a model's recorded measurements on some items; None: not measured."""

    components: Callable[[EvaluationKey], Components | None]
    fitness: Callable[[EvaluationKey], Fitness | None]
    outcomes: Callable[[EvaluationKey], Outcomes | None]


@dataclass(frozen=True)
class Past:
    """The run as a strategy sees it: before a generation, or after that generation's ranking."""

    family: SourceFamily
    #: Generation → the settings that it is proposed with.
    settings: Callable[[int], EvoMergeConfig]
    recipes: Mapping[str, Recipe]
    #: Complete generations, in order; after a generation's ranking, that generation is the last.
    generations: tuple[Generation, ...]
    #: The first generation that this strategy decides: 0, unless a fork changed the strategy.
    since: int
    champion: str | None
    #: Generations whose losers' slots are reseeded.
    reseeded: frozenset[int]
    measured: Measurements

    @property
    def coming(self) -> int:
        """The number of the generation to propose."""
        return len(self.generations)

    @property
    def config(self) -> EvoMergeConfig:
        """The settings of the generation to propose."""
        return self.settings(self.coming)

    @property
    def own(self) -> Sequence[Generation]:
        """The generations that this strategy has decided."""
        return self.generations[self.since :]


class Strategy(ABC):
    """Base class of strategies.

    To add a strategy, subclass it and register the class under the entry point group
    `evomerge.strategies`. If the strategy has settings of its own, set `settings` to a subclass of
    `SearchSettings`; `ask` finds them in `past.config.search`.
    """

    #: Name and version that runs record, for example "tournament@1". The proposals of a version
    #: never change; the next version is another class.
    version: str
    #: The smallest population that the strategy can work with.
    fewest = 1
    #: Model of the settings that only this strategy has (`EvoMergeConfig.search`).
    settings: type[SearchSettings] = SearchSettings
    #: Stages of the search: a plateau lasts `convergence_patience` generations for each stage.
    stages = 1

    def check(self, config: EvoMergeConfig) -> str | None:
        """Return the reason why these settings do not suit the strategy; None if they do."""
        size = config.search.population_size
        if size < self.fewest:
            return f"population_size must be at least {self.fewest}, it is {size}"
        return None

    @abstractmethod
    def ask(self, past: Past) -> list[Proposal]:
        """Return proposals, the candidates of generation `past.coming`, in slots from 0 on."""

    def stayed(self, past: Past) -> list[str]:
        """Return ids of earlier generations' recipes to evaluate again on the new items; default []."""
        return []

    def finalists(self, past: Past) -> list[str | Proposal]:
        """Return the candidates (ids or proposals) to measure on the selection slice.

        Ids are of the generation just measured; proposals are new recipes, in slots after the
        generation's. By default they are its elites.
        """
        last = past.generations[-1]
        return list(last.ranking[: past.settings(last.number).search.kept])

    def loser_slots(self, config: EvoMergeConfig) -> tuple[int, ...] | None:
        """Return the slots to reseed when diversity is critical; None: never reseed."""
        return None
