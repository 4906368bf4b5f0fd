"""What a strategy is told: everything that was measured before the generation that it is asked for."""

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
    #: Those whose evaluation was ended early: their numbers are of other items.
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
    """What the log says of a model on some items; None where it was not measured."""

    components: Callable[[EvaluationKey], Components | None]
    fitness: Callable[[EvaluationKey], Fitness | None]
    outcomes: Callable[[EvaluationKey], Outcomes | None]


@dataclass(frozen=True)
class Past:
    """A run before a generation, or at its end when its ranking is known."""

    family: Family
    #: Generation → the settings it is proposed by.
    settings: Callable[[int], EvoMergeConfig]
    recipes: Mapping[str, Recipe]
    #: Complete ones, in order; at a generation's end it is the last.
    generations: tuple[Generation, ...]
    #: The first generation that this strategy decides: 0, unless a fork changed the strategy.
    since: int
    champion: str | None
    #: Generations whose losers' slots are seeded anew.
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
