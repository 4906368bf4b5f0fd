"""nsga2@1: several objectives and a Pareto front, after NSGA-II.

Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II". Parents and
children are measured on the same draw. The next parents are the better fronts of both; of the last
front, which fits only in part, the least crowded candidates are taken. Children come from binary
tournaments, simulated binary crossover and polynomial mutation on the continuous genome of the
first species. The parents' second measurement is the price of drawing new items each generation.
"""

from __future__ import annotations

import math

from typing_extensions import override

from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.fitness.composite import Components
from agent_forge.evomerge.recipes.recipe import Flow, Grouped
from agent_forge.evomerge.search.genes.genome import Space, space_of
from agent_forge.evomerge.search.genes.mutation import rerouted
from agent_forge.evomerge.search.strategies.cma_es import mask_seed
from agent_forge.evomerge.search.strategies.initial_points import seeds
from agent_forge.evomerge.search.strategy import Generation, Past, Proposal, Strategy
from agent_forge.evomerge.search_settings import Nsga2Search
from agent_forge.search import pareto
from agent_forge.search.pareto import Draws, Survivor

#: Attempts to breed a child that is not a copy of a candidate of the last generation.
TRIES = 8


def objectives(measured: Components, names: tuple[str, ...]) -> tuple[float, ...] | None:
    """Return the value to maximise of each name, such as −log perplexity or accuracy; or None.

    Others are −operations and −bytes. A domain's value is its −log perplexity if the domain has
    text, else its accuracy. None: a domain has neither on these items.
    """
    values = []
    for name in names:
        kind, _, domain = name.partition("/")
        if kind == "domain":
            rate = measured.domains.get(domain)
            if rate is None and domain not in measured.accuracies:
                return None
            values.append(measured.accuracies[domain] if rate is None else -math.log(rate))
        else:
            values.append(
                {
                    "perplexity": -math.log(measured.perplexity),
                    "accuracy": measured.accuracy,
                    "speed": -measured.flops,
                    "memory": -measured.bytes,
                }[kind]
            )
    return tuple(values)


class Nsga2(Strategy):
    """Strategy whose population spreads along the Pareto front."""

    version = "nsga2@1"
    settings = Nsga2Search
    fewest = 4

    @override
    def check(self, config: EvoMergeConfig) -> str | None:
        if len(config.search.front_objectives) < 2:
            return "objectives must name two things or more to weigh against each other"
        return super().check(config)

    @override
    def stayed(self, past: Past) -> list[str]:
        return [parent.id for parent in self._parents(past)] if past.generations else []

    @override
    def ask(self, past: Past) -> list[Proposal]:
        config = past.config
        if not past.generations:
            recipes = seeds(past, config.search.population_size)
            return [Proposal(slot, "seeded", recipe) for slot, recipe in enumerate(recipes)]
        parents = self._parents(past)
        return [self._child(past, parents, slot) for slot in range(config.search.population_size)]

    @override
    def finalists(self, past: Past) -> list[str | Proposal]:
        """Return ids of the first front, the best score first, at most `population_size`."""
        last = past.generations[-1]
        points = _points(past, last)
        ids = list(points)
        first = pareto.fronts([points[i] for i in ids])[0] if ids else []
        best = sorted((ids[i] for i in first), key=lambda id_: last.places[id_])
        return list(best[: past.settings(last.number).search.population_size])

    def _parents(self, past: Past) -> list[Survivor]:
        """Return up to `population_size` survivors of the last generation; without any, all ranked."""
        last, size = past.generations[-1], past.settings(past.coming - 1).search.population_size
        survivors = pareto.survivors(_points(past, last))
        return survivors[:size] or [Survivor(id_, 0, 0.0) for id_ in last.ranking]

    def _child(self, past: Past, parents: list[Survivor], slot: int) -> Proposal:
        config = past.config
        space = space_of(config, past.family, config.search_as(Nsga2Search).species[0])
        places = past.generations[-1].places
        for attempt in range(TRIES):
            key = (config.seed, "nsga2", past.coming, slot, attempt)
            paths = space.paths.dimension if space.paths else 0
            draws = Draws(*key, count=16 + 5 * space.dimension + paths)
            recipe, pair = self._bred(past, parents, space, draws)
            if recipe.id not in places:  # a copy of a candidate would tell nothing new
                break
        return Proposal(slot, "crossed", recipe, pair)

    def _bred(
        self, past: Past, parents: list[Survivor], space: Space, draws: Draws
    ) -> tuple[Grouped | Flow, tuple[str, ...]]:
        mother, father = (pareto.tournament(parents, draws) for _ in range(2))
        a, b = (space.point(past.recipes[id_], past.recipes) for id_ in (mother, father))
        point = pareto.polynomial(pareto.binary(a, b, draws), draws)
        point = rerouted(point, space, draws)
        recipe = space.recipe(point, mask_seed(past.config))
        return recipe, tuple(dict.fromkeys((mother, father)))


def _points(past: Past, done: Generation) -> dict[str, tuple[float, ...]]:
    """Return {recipe id: objectives}, in order of rank.

    Candidates without objectives, or whose evaluation stopped early, are left out.
    """
    names = past.settings(done.number).search.front_objectives
    points = {}
    for id_ in done.ranking:
        measured = past.measured.components((id_, "search", done.number))
        point = objectives(measured, names) if measured is not None else None
        if point is not None and id_ not in done.dropped:
            points[id_] = point
    return points
