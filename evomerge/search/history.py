"""Input of a strategy: all measurements before the generation that it proposes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evaluation.data.outcomes import Outcomes
from evaluation.data.slices import Slice
from evomerge.config import EvoMergeConfig
from evomerge.fitness.composite import Components, Fitness
from evomerge.recipes.recipe import Recipe
from evomerge.search.proposals import Family, Proposal

#: (recipe id, slice, generation of the draw or None for the whole slice).
EvaluationKey = tuple[str, Slice, int | None]


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

    family: Family
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


__all__ = ["EvaluationKey", "Generation", "Measurements", "Past", "Proposal"]
