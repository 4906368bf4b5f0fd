"""tournament@1: tournament selection, crossover, mutation, elites (SPEC §5).

Each parent is the best of `tournament_size` candidates drawn from the previous generation. With
probability `crossover_rate` a child takes genes of two parents, cell by cell or from a place on the
line between them. Every child is mutated. The elites stay and are measured again on the new draw.
With `niching` the first parent wins by its share of the items' worth, or the second parent wins by
how well it complements the first, or both (see `niching`).
"""

from __future__ import annotations

from typing_extensions import override

from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.recipes.recipe import SPECIES, Flow, Grouped, Mutate, Noise, Recipe, genome
from agent_forge.evomerge.search.genes.genome import space_of
from agent_forge.evomerge.search.genes.mutation import STEP, SWITCH, chosen, rerouted, strength
from agent_forge.evomerge.search.strategies import niching
from agent_forge.evomerge.search.strategies.cma_es import mask_seed
from agent_forge.evomerge.search.strategies.initial_points import seeds
from agent_forge.evomerge.search.strategy import Past, Proposal, Strategy
from agent_forge.evomerge.search_settings import TournamentSearch
from agent_forge.runs import keys
from agent_forge.search import pareto
from agent_forge.search.pareto import Draws


class Tournament(Strategy):
    """Strategy: a genetic algorithm on grouped recipes."""

    version = "tournament@1"
    settings = TournamentSearch

    @override
    def check(self, config: EvoMergeConfig) -> str | None:
        search = config.search_as(TournamentSearch)
        if search.elite_size >= search.population_size:
            return (
                f"{search.elite_size} elites leave no room for children among "
                f"{search.population_size} candidates"
            )
        return super().check(config)

    @override
    def stayed(self, past: Past) -> list[str]:
        """Return the ids of the elites of the last generation; [] if there is none yet."""
        if not past.generations:
            return []
        return list(past.generations[-1].ranking[: past.config.search.kept])

    @override
    def ask(self, past: Past) -> list[Proposal]:
        """Return proposals: seeds at first, then children in the slots that the elites leave."""
        search = past.config.search_as(TournamentSearch)
        if not past.generations:
            recipes = seeds(past, search.population_size)
            return [Proposal(slot, "seeded", recipe) for slot, recipe in enumerate(recipes)]
        count = search.population_size - len(self.stayed(past))
        shared = search.niching in ("sharing", "both")
        order = niching.by_share(past) if shared else list(past.generations[-1].ranking)
        return [self._child(past, slot, order) for slot in range(count)]

    def _child(self, past: Past, slot: int, order: list[str]) -> Proposal:
        config, ranking = past.config, past.generations[-1].ranking
        search = config.search_as(TournamentSearch)
        dimension = space_of(config, past.family, SPECIES[0]).dimension
        draws = Draws(
            config.seed,
            "child",
            past.coming,
            slot,
            count=64 + 2 * search.tournament_size + 8 * (dimension + 8 * 4),
        )
        first = min(draws.below(len(order)) for _ in range(search.tournament_size))
        parents = [order[first]]
        if draws.chance(search.crossover_rate) and len(ranking) > 1:
            parents.append(_partner(past, parents[0], draws))
        species = _species(past, parents[0], draws)
        space = space_of(config, past.family, species)
        point = space.point(past.recipes[parents[0]], past.recipes)
        if len(parents) == 2:
            other = space.point(past.recipes[parents[1]], past.recipes)
            if draws.chance(0.5):
                point = pareto.layer_wise(point, other, space.sizes, draws)
            else:
                point = pareto.blended(point, other, draws)
        if search.mutation in ("genes", "both"):
            point = pareto.gaussian(point, STEP * search.gene_sigma * strength(past), draws)
            point = rerouted(point, space, draws)
        recipe = space.recipe(point, mask_seed(config))
        done = _noisy(past, parents[0], recipe, slot)
        kind = "crossed" if len(parents) == 2 else "mutated"
        return Proposal(slot, kind, done, tuple(parents))


def _partner(past: Past, first: str, draws: Draws) -> str:
    """Return the id of the second parent: a tournament's winner, or the first's complement."""
    search, ranking = past.config.search_as(TournamentSearch), past.generations[-1].ranking
    rest = [id_ for id_ in ranking if id_ != first]
    drawn = [draws.below(len(rest)) for _ in range(search.tournament_size)]
    if search.niching in ("attraction", "both"):
        return niching.complement(past, first, [rest[i] for i in sorted(set(drawn))])
    return rest[min(drawn)]


def _species(past: Past, parent: str, draws: Draws) -> str:
    """Return the name of the parent's species or, with probability SWITCH, of a chosen one."""
    recipe: Recipe = past.recipes[parent]
    every = past.config.search_as(TournamentSearch).species
    if isinstance(recipe, Mutate):
        recipe = genome(recipe, past.recipes).pipeline
    if isinstance(recipe, Flow):
        recipe = recipe.merged
    species = recipe.name if isinstance(recipe, Grouped) else every[0]
    switch, fresh = draws.chance(SWITCH), chosen(past, list(every), draws)
    return fresh if switch or species not in SPECIES else species


def _noisy(past: Past, parent: str, recipe: Grouped | Flow, slot: int) -> Grouped | Flow | Mutate:
    """Return the recipe, with noise on its weights unless `mutation` is "genes"."""
    search = past.config.search_as(TournamentSearch)
    if search.mutation == "genes":
        return recipe
    noise = Noise(
        rate=search.mutation_rate,
        sigma=search.mutation_sigma * strength(past),
        relative_to=search.mutation_relative_to,
        seed=keys.seed(past.config.seed, "noise", past.coming, slot),
    )
    return Mutate(parent=parent, base=past.family.base, pipeline=recipe, noise=noise)
