"""auto@2, the default strategy: a bandit over species, each with its own CMA-ES distribution.

    generation 0   every species at some scales of plain task arithmetic over all sources
    then           a bandit picks a species, whose distribution (CMA-ES) gives the generation

A species' value is the selection-slice score of its distribution's mean. Species are therefore
compared on the same items, and the mean was not picked by a lucky score. The bandit adds a bonus
for uncertainty (UCB1, Auer et al. 2002, scaled by how far the species were apart at first).

A distribution begins with one cell for all tensors, where three sources give three genes. It restarts
with more cells at the best mean when it has shrunk around its mean, or when `patience` means in a row
were no better: first with a cell per layer group, then with a cell per layer group and part.

Each generation draws new items. Only the distribution's mean is judged, never the luckiest sample.

auto@1 differs in three ways: its second stage had one cell per part, it restarted only when the
distribution had shrunk, and it restarted from the newest mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from typing_extensions import override

from agent_forge.evomerge.recipes.recipe import Flow, Grouped
from agent_forge.evomerge.search.genes.genome import Detail, Space, roomy, space_of
from agent_forge.evomerge.search.strategies.cma_es import Distribution, mask_seed
from agent_forge.evomerge.search.strategies.initial_points import seeds
from agent_forge.evomerge.search.strategy import Generation, Past, Proposal, Strategy
from agent_forge.evomerge.search_settings import AutoSearch

#: Standard deviation of a distribution's first generation, as a share of a gene's range.
SIGMA: dict[Detail, float] = {"whole": 0.12, "layers": 0.08, "parts": 0.05, "full": 0.04}
#: A distribution is finished when its spread is below this share of its first spread.
DONE = 0.4


@dataclass
class SpeciesSearch:
    """A species and the state of its search."""

    species: str
    point: list[float]
    #: Selection scores of its means, the newest last.
    values: list[float | None] = field(default_factory=list)
    detail: Detail = "whole"
    distribution: Distribution | None = None
    #: The best mean with these cells, and the best score; the number of means since the best one.
    best: list[float] = field(default_factory=list)
    score: float = -math.inf
    since: int = 0

    @property
    def value(self) -> float:
        """The newest score of the species; −∞ if no mean has a score."""
        scores = [v for v in self.values if v is not None]
        return scores[-1] if scores else -math.inf


class Auto(Strategy):
    """Strategy with a bandit over species and a distribution in each species."""

    version = "auto@2"
    #: Cells → the finer cells of the next stage.
    finer: Mapping[Detail, Detail] = {"whole": "layers", "layers": "full", "parts": "full"}
    #: Means without an improvement after which the next stage begins; None: no such limit.
    patience: int | None = 3
    stages = 3
    settings = AutoSearch
    fewest = 4

    @override
    def ask(self, past: Past) -> list[Proposal]:
        """Return proposals: seeds at first, then points of the species that the bandit picks."""
        config = past.config
        if not past.own:
            recipes = seeds(past, config.search.population_size)
            return [Proposal(slot, "seeded", recipe) for slot, recipe in enumerate(recipes)]
        arm = _pick(self._arms(past))
        assert arm.distribution
        return arm.distribution.proposals(config, past.coming)

    @override
    def finalists(self, past: Past) -> list[str | Proposal]:
        """Return ids of the species' best seeds or, later, one proposal: the picked species' mean."""
        config, last = past.settings(past.coming - 1), past.generations[-1]
        if len(past.own) == 1:
            return list(_best_seeds(past, last).values())
        arms = self._arms(past, measured=len(past.own) - 1)
        arm = _pick(arms)
        _tell(past, arm, last)
        return [Proposal(config.search.population_size, "sampled", _mean(past, arm))]

    def _arms(self, past: Past, measured: int | None = None) -> list[SpeciesSearch]:
        """Return a `SpeciesSearch` for each species, after the first `measured` own generations."""
        generations = past.own[:measured]
        arms = []
        for species, id_ in _best_seeds(past, generations[0]).items():
            space = _space(past, species, "whole")
            arm = SpeciesSearch(species, space.point(past.recipes[id_], past.recipes))
            _judged(arm, _score(past, id_), arm.point)
            arms.append(arm)
        for arm in arms:
            _begin(past, arm, "whole")
        for done in generations[1:]:
            arm = _pick(arms)
            _tell(past, arm, done)
            assert arm.distribution
            _judged(arm, _score(past, _mean(past, arm).id), arm.distribution.mean)
            self._refine(past, arm)
        return arms

    def _refine(self, past: Past, arm: SpeciesSearch) -> None:
        """Restart the arm with more cells if its distribution has shrunk or stopped improving."""
        assert arm.distribution
        shrunk = arm.distribution.spread < DONE * SIGMA[arm.detail]
        stuck = self.patience is not None and arm.since >= self.patience
        if (shrunk or stuck) and arm.detail in self.finer:
            recipe = arm.distribution.space.recipe(self._anew(arm))
            finer = self.finer[arm.detail]
            arm.point = _space(past, arm.species, finer).point(recipe, {})
            _begin(past, arm, finer)

    def _anew(self, arm: SpeciesSearch) -> list[float]:
        """Return the point at which a finer distribution restarts."""
        return arm.best


class Auto1(Auto):
    """The earlier version; the module's docstring says how it differs."""

    version = "auto@1"
    finer: Mapping[Detail, Detail] = {"whole": "parts", "parts": "full"}
    patience = None
    stages = 1

    @override
    def _anew(self, arm: SpeciesSearch) -> list[float]:
        return arm.point


def _judged(arm: SpeciesSearch, score: float | None, point: list[float]) -> None:
    """Append the score of a seed or a mean to the arm, and keep the best."""
    arm.values.append(score)
    arm.since += 1
    if score is not None and score > arm.score:
        arm.best, arm.score, arm.since = list(point), score, 0


def _best_seeds(past: Past, first: Generation) -> dict[str, str]:
    """Return {species: recipe id of its best seed}."""
    ids_by_species: dict[str, str] = {}
    for id_ in first.ranking:
        recipe = past.recipes[id_]
        if isinstance(recipe, Grouped):
            ids_by_species.setdefault(recipe.name, id_)
    return ids_by_species


def _pick(arms: list[SpeciesSearch]) -> SpeciesSearch:
    """Return an arm picked by UCB1, the first of equal arms."""
    total = sum(len(arm.values) for arm in arms)
    firsts = [arm.values[0] for arm in arms if arm.values[0] is not None]
    scale = (max(firsts) - min(firsts)) / 2 if firsts else 0.0

    def bound(arm: SpeciesSearch) -> float:
        return arm.value + scale * math.sqrt(math.log(total) / len(arm.values))

    return max(arms, key=bound)


def _score(past: Past, id_: str) -> float | None:
    fitness = past.measured.fitness((id_, "selection", None))
    return None if fitness is None else fitness.scalar


def _space(past: Past, species: str, detail: Detail) -> Space:
    return space_of(past.settings(past.since), past.family, species, detail)


def _begin(past: Past, arm: SpeciesSearch, detail: Detail) -> None:
    """Give the arm a new distribution around its point, with these cells."""
    first = past.settings(past.since)
    plain_space = _space(past, arm.species, detail)
    space = roomy(plain_space)
    if space.detail != detail:
        arm.point = space.point(plain_space.recipe(arm.point), {})
    arm.detail = detail = space.detail
    arm.best, arm.since = list(arm.point), 0
    key = ("auto", arm.species, detail)
    size = first.search.population_size
    arm.distribution = Distribution.at(space, arm.point, SIGMA[detail], size, *key)


def _tell(past: Past, arm: SpeciesSearch, done: Generation) -> None:
    assert arm.distribution
    size = past.settings(past.since).search.population_size
    seed = past.settings(done.number).seed
    arm.distribution.tell(done, range(size), past.recipes, seed)
    arm.point = arm.distribution.mean


def _mean(past: Past, arm: SpeciesSearch) -> Grouped | Flow:
    assert arm.distribution
    seed = mask_seed(past.settings(past.since))
    return arm.distribution.space.recipe(arm.distribution.mean, seed)
