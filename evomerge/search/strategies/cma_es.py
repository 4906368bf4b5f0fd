"""cma-es@1: the covariance matrix adaptation evolution strategy over the continuous genome.

Hansen & Ostermeier 2001, "Completely derandomized self-adaptation in evolution strategies", in the
form of `covariance_adaptation.py`. The points of a generation are drawn from a normal distribution.
Its mean and covariance move towards the better half. The distribution is told ranks on items that
each generation draws again. The selection slice judges the distribution's mean, which was not
picked by a lucky score.

Nothing is kept between generations: the distribution is rebuilt by telling it every recorded
generation. A candidate that could not be measured is told with the worst rank, at the point that
was asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.recipes.recipe import Recipe
from agent_forge.evomerge.search.genes.genome import Space, roomy, space_of
from agent_forge.evomerge.search.strategies.covariance_adaptation import CovarianceAdaptation
from agent_forge.evomerge.search.strategy import Generation, Past, Proposal, Strategy
from agent_forge.evomerge.search_settings import CmaEsSearch
from agent_forge.runs import keys

#: Bits of a seed that numpy's old generator takes.
_SEED_BITS = 32


@dataclass
class Distribution:
    """A CMA distribution over a space; its random numbers come from keys."""

    space: Space
    cma: CovarianceAdaptation
    key: tuple[str | int, ...]

    @classmethod
    def at(
        cls, space: Space, mean: Sequence[float], sigma: float, size: int, *key: str | int
    ) -> Distribution:
        """Return a new distribution around `mean`, which is moved off the bounds.

        Raise ValueError if the space has only one gene.
        """
        if space.dimension == 1:
            raise ValueError("a distribution needs two genes")
        inside = np.clip(np.asarray(mean, float), 0.001, 0.999)
        return cls(space, CovarianceAdaptation(inside, sigma, size), key)

    def ask(self, count: int, generation: int, seed: int) -> list[np.ndarray]:
        """Return `count` points of a generation; repeated calls return the same points."""
        key = keys.key(seed, *self.key, "ask", generation) % (1 << _SEED_BITS)
        normal = np.random.RandomState(key)  # numpy keeps this generator's numbers for ever
        return [self.cma.sample(normal) for _ in range(count)]

    def proposals(self, config: EvoMergeConfig, generation: int) -> list[Proposal]:
        """Return a generation's points as proposals, one per slot of the population."""
        size, seed = config.search.population_size, mask_seed(config)
        points = self.ask(size, generation, config.seed)
        return [
            Proposal(slot, "sampled", self.space.recipe([float(v) for v in point], seed))
            for slot, point in enumerate(points)
        ]

    def tell(
        self, done: Generation, slots: Sequence[int], recipes: Mapping[str, Recipe], seed: int
    ) -> None:
        """Update the distribution with the ranks of a recorded generation."""
        places, worst = done.places, len(done.ranking)
        points: list[np.ndarray] = []
        ranked_points: list[tuple[np.ndarray, float]] = []
        for order, slot in enumerate(slots):
            id_ = done.slots.get(slot)
            if id_ is None:
                points = points or self.ask(len(slots), done.number, seed)
                ranked_points.append((points[order], float(worst)))
            else:
                point = np.array(self.space.point(recipes[id_], recipes))
                if self.space.paths:  # several points mean one path: tell the asked point
                    points = points or self.ask(len(slots), done.number, seed)
                    point = self._same(points[order], point)
                ranked_points.append((point, float(places[id_])))
        ranked_points.sort(key=lambda pair: pair[1])
        self.cma.update([point for point, _ in ranked_points])

    def _same(self, asked_point: np.ndarray, point: np.ndarray) -> np.ndarray:
        """Return `point`, with the path genes of `asked_point` if both points mean the same path."""
        assert self.space.paths
        first = self.space.merging
        paths = (self.space.paths.steps(x[first:].tolist()) for x in (asked_point, point))
        same = next(paths) == next(paths)
        return np.concatenate([point[:first], (asked_point if same else point)[first:]])

    @property
    def spread(self) -> float:
        """The step size: the standard deviation of a gene before the covariance scales it."""
        return float(self.cma.sigma)

    @property
    def mean(self) -> list[float]:
        """The distribution's mean, clipped to the bounds."""
        return [float(v) for v in np.clip(self.cma.mean, 0.0, 1.0)]


def mask_seed(config: EvoMergeConfig) -> int:
    """Return the one seed of all dropout masks, so that candidates differ only by their genes."""
    return keys.seed(config.seed, "mask")


class CmaEs(Strategy):
    """Strategy with one distribution, over the first species of the settings."""

    version = "cma-es@1"
    settings = CmaEsSearch
    fewest = 4

    @override
    def ask(self, past: Past) -> list[Proposal]:
        return self._now(past).proposals(past.config, past.coming)

    @override
    def finalists(self, past: Past) -> list[str | Proposal]:
        """Return one proposal: the distribution's mean."""
        now, config = self._now(past), past.settings(past.coming - 1)
        recipe = now.space.recipe(now.mean, mask_seed(config))
        return [Proposal(config.search.population_size, "sampled", recipe)]

    def _now(self, past: Past) -> Distribution:
        """Return the `Distribution` after all recorded generations of this strategy."""
        first = past.settings(past.since)
        search = first.search_as(CmaEsSearch)
        space = roomy(space_of(first, past.family, search.species[0]))
        now = Distribution.at(
            space, start(past, space), search.search_sigma, search.population_size, "cma-es"
        )
        for done in past.own:
            slots = range(search.population_size)
            now.tell(done, slots, past.recipes, past.settings(done.number).seed)
        return now


def start(past: Past, space: Space) -> list[float]:
    """Return the point that is the first mean of a search.

    After generations of another strategy it is the champion's point, or that of the last generation's
    best candidate if there is no champion. Otherwise it is the mean of the sources.
    """
    before = past.generations[: past.since]
    if before:
        return space.point(past.recipes[past.champion or before[-1].ranking[0]], past.recipes)
    count = len(past.family.sources)
    return space.uniform([1 / count] * count)
