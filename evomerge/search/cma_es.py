"""cma-es@1: the covariance matrix adaptation evolution strategy over the continuous genome.

Hansen & Ostermeier 2001, "Completely derandomized self-adaptation in evolution strategies", as the
package `cmaes` implements it. The points of a generation are drawn from a normal distribution, whose
mean and covariance move towards the better half. It is told ranks, on items that are drawn anew each
generation; whom the selection slice judges is the distribution's mean, which no luck has chosen.

Nothing is kept between generations: the distribution is made again by telling it every recorded
generation. A candidate that could not be measured is told as the last one, at the point that was asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cmaes import CMA

from evomerge.config import EvoMergeConfig
from evomerge.recipes.recipe import Recipe
from evomerge.search.genome import Space, roomy, space_of
from evomerge.search.history import Generation, Past
from evomerge.search.proposals import Proposal
from evomerge.search.strategy import GENOME, PATHS, Strategy
from runs import keys

#: numpy's old generator takes so many bits.
_SEED_BITS = 32


class _Cma(CMA):
    """Samples by the symmetric root of the covariance.

    Eigenvectors of equal eigenvalues are any basis of their space, another one with another processor
    or number of threads; B·D·Bᵀ is the same for all of them.
    """

    def _sample_solution(self) -> np.ndarray:
        basis, scale = self._eigen_decomposition()
        z = self._rng.randn(self._n_dim)
        return self._mean + self._sigma * (basis @ (scale * (basis.T @ z)))


@dataclass
class Distribution:
    """A CMA distribution over a space, asked and told by keys."""

    space: Space
    cma: CMA
    key: tuple[str | int, ...]

    @classmethod
    def at(
        cls,
        space: Space,
        mean: Sequence[float],
        sigma: float,
        size: int,
        *key: str | int,
        prior: np.ndarray | None = None,
    ) -> Distribution:
        """A new one. `prior` is its covariance at first, [n, n]."""
        n = space.dimension
        bounds = np.array([[0.0, 1.0]] * n)
        inside = np.clip(np.asarray(mean, float), 0.001, 0.999)
        if n == 1:
            raise ValueError("a distribution needs two genes")
        cma = _Cma(inside, sigma, bounds, population_size=size, cov=prior, seed=0)
        return cls(space, cma, key)

    def ask(self, count: int, generation: int, seed: int) -> list[np.ndarray]:
        """Points of a generation: the same however often one asks."""
        self.cma.reseed_rng(keys.key(seed, *self.key, "ask", generation) % (1 << _SEED_BITS))
        return [self.cma.ask() for _ in range(count)]

    def proposals(self, config: EvoMergeConfig, generation: int) -> list[Proposal]:
        """A population of such points."""
        points, seed = self.ask(config.population_size, generation, config.seed), mask_seed(config)
        return [
            Proposal(slot, "sampled", self.space.recipe([float(v) for v in point], seed))
            for slot, point in enumerate(points)
        ]

    def tell(
        self, done: Generation, slots: Sequence[int], recipes: Mapping[str, Recipe], seed: int
    ) -> None:
        """What a recorded generation has shown, by ranks."""
        places, worst = done.places, len(done.ranking)
        asked: list[np.ndarray] = []
        told = []
        for order, slot in enumerate(slots):
            id_ = done.slots.get(slot)
            if id_ is None:
                asked = asked or self.ask(len(slots), done.number, seed)
                told.append((asked[order], float(worst)))
            else:
                point = np.array(self.space.point(recipes[id_], recipes))
                if self.space.paths:  # several points mean one path: tell the one that was asked
                    asked = asked or self.ask(len(slots), done.number, seed)
                    point = self._same(asked[order], point)
                told.append((point, float(places[id_])))
        self.cma.tell(told)

    def _same(self, asked: np.ndarray, point: np.ndarray) -> np.ndarray:
        """What was asked for, if it says the same path as the point of what was built."""
        assert self.space.paths
        first = self.space.merging
        paths = (self.space.paths.steps(x[first:].tolist()) for x in (asked, point))
        same = next(paths) == next(paths)
        return np.concatenate([point[:first], (asked if same else point)[first:]])

    @property
    def spread(self) -> float:
        """Its step size: the standard deviation of a gene, before the covariance has its say."""
        return float(self.cma._sigma)

    @property
    def mean(self) -> list[float]:
        """Its middle, inside of the bounds."""
        return [float(v) for v in np.clip(self.cma.mean, 0.0, 1.0)]


def mask_seed(config: EvoMergeConfig) -> int:
    """One mask for all that drop: two candidates differ by their genes and not by their luck."""
    return keys.seed(config.seed, "mask")


class CmaEs(Strategy):
    """One distribution over the first of the species."""

    version = "cma-es@1"
    reads = GENOME | PATHS | {"search_sigma"}
    fewest = 4
    paths = True

    def ask(self, past: Past) -> list[Proposal]:
        """Points of the distribution."""
        return self._now(past).proposals(past.config, past.coming)

    def finalists(self, past: Past) -> list[str | Proposal]:
        """The distribution's mean."""
        now, config = self._now(past), past.settings(past.coming - 1)
        recipe = now.space.recipe(now.mean, mask_seed(config))
        return [Proposal(config.population_size, "sampled", recipe)]

    def _now(self, past: Past) -> Distribution:
        """The distribution after everything that was recorded."""
        first = past.settings(past.since)
        space = roomy(space_of(first, past.family, first.species[0]))
        now = Distribution.at(
            space,
            start(past, space),
            first.search_sigma,
            first.population_size,
            "cma-es",
        )
        for done in past.own:
            slots = range(first.population_size)
            now.tell(done, slots, past.recipes, past.settings(done.number).seed)
        return now


def start(past: Past, space: Space) -> list[float]:
    """Where a search begins: at the champion of before, or at the mean of the sources."""
    before = past.generations[: past.since]
    if before:
        return space.point(past.recipes[past.champion or before[-1].ranking[0]], past.recipes)
    count = len(past.family.sources)
    return space.uniform([1 / count] * count)
