"""elite-loser@1: the best candidates are mutated, the rest are merged in threes (SPEC §5).

    generation 0      the eight pipelines over the sources
    generation g + 1  each of the top E → M mutants; the rest, three at a time in order of rank →
                      one merge each by a random pipeline. E·M + (N − E)/3 = N

With `reseeded` the losers' slots get random pipelines over the sources instead. Every random number
comes from a key (run seed, purpose, generation, slot).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from typing_extensions import override

from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.recipes.recipe import (
    PIPELINES,
    Genes,
    Mutate,
    Noise,
    Pipeline,
    Recipe,
    genome,
)
from agent_forge.evomerge.search.genes.mutation import chosen, mutate_genes, mutate_merge, strength
from agent_forge.evomerge.search.strategy import Past, Proposal, SourceFamily, Strategy
from agent_forge.evomerge.search_settings import EliteLoserSearch
from agent_forge.runs import keys
from agent_forge.search.pareto import Draws
from agent_forge.weights import randomness


def first_generation(config: EvoMergeConfig, family: SourceFamily) -> list[Proposal]:
    """Return proposals of the allowed pipelines, each once in the order of their numbers.

    A smaller population takes a keyed random choice of the pipelines; a larger population is filled
    up with perturbed copies.
    """
    search = config.search_as(EliteLoserSearch)
    allowed, size = list(search.pipelines), search.population_size
    if size < len(allowed):
        order = randomness.permutation(len(allowed), config.seed, "first-generation")
        allowed = sorted(allowed[int(i)] for i in order[:size])
    proposals = []
    for slot in range(size):
        pipeline = _pipeline(config, family.sources, family, allowed[slot % len(allowed)], 0, slot)
        if slot >= len(allowed):
            pipeline = mutate_genes(pipeline, search, config.seed, "seed", 0, slot)
        proposals.append(Proposal(slot, "seeded", pipeline))
    return proposals


def next_generation(
    config: EvoMergeConfig,
    family: SourceFamily,
    recipes: Mapping[str, Recipe],
    ranking: Sequence[str],
    generation: int,
    reseeded: bool,
    pick: Callable[[Draws], int] | None = None,
    merges: int | None = None,
) -> list[Proposal]:
    """Return the proposals for `generation` from the ranking of the generation before, best first.

    `pick` chooses the pipeline of a slot; without `pick` all pipelines are equally likely. `merges`
    is the number of losers' slots; by default one for every three losers.
    """
    search = config.search_as(EliteLoserSearch)
    proposals: list[Proposal] = []
    elites = ranking[: search.elite_size]
    losers = ranking[search.elite_size : search.population_size]
    for elite in elites:
        for _ in range(search.mutants_per_elite):
            mutant = _mutant(config, family, recipes, elite, generation, len(proposals))
            proposals.append(Proposal(len(proposals), "mutated", mutant, (elite,)))
    for start in range(0, len(losers) if merges is None else 3 * merges, 3):
        slot, trio = len(proposals), _trio(losers[start : start + 3], ranking)
        draws = Draws(config.seed, "pipeline", generation, slot)
        number = pick(draws) if pick else search.pipelines[draws.below(len(search.pipelines))]
        if reseeded:
            pipeline = _pipeline(config, family.sources, family, number, generation, slot)
            key = (config.seed, "reseed", generation, slot)
            pipeline = mutate_genes(pipeline, search, *key)
            proposals.append(Proposal(slot, "seeded", pipeline))
        else:
            pipeline = _pipeline(config, trio, family, number, generation, slot)
            proposals.append(Proposal(slot, "merged", pipeline, trio))
    return proposals


def _trio(losers: Sequence[str], ranking: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of three losers to merge; the best others fill up if there are fewer."""
    rest = [id_ for id_ in ranking if id_ not in losers]
    return (*losers, *rest[: 3 - len(losers)])


def loser_slots(config: EvoMergeConfig) -> tuple[int, ...]:
    """Return the slots that losers' merges or reseeded pipelines take."""
    search = config.search_as(EliteLoserSearch)
    return tuple(range(search.elite_size * search.mutants_per_elite, search.population_size))


def _pipeline(
    config: EvoMergeConfig,
    inputs: tuple[str, ...],
    family: SourceFamily,
    number: int,
    generation: int,
    slot: int,
) -> Pipeline:
    interpolation, arithmetic, selection = PIPELINES[number]
    search = config.search_as(EliteLoserSearch)
    return Pipeline(
        inputs=inputs,
        base=family.base,
        interpolation=interpolation,
        arithmetic=arithmetic,
        selection=selection,
        genes=Genes(drop=search.dare_drop, density=search.ties_density),
        seed=keys.seed(config.seed, "recipe", generation, slot),
    )


def _mutant(
    config: EvoMergeConfig,
    family: SourceFamily,
    recipes: Mapping[str, Recipe],
    elite: str,
    generation: int,
    slot: int,
) -> Mutate:
    pipeline, noise = None, None
    search = config.search_as(EliteLoserSearch)
    if search.mutation in ("genes", "both"):
        parent = genome(recipes[elite], recipes).pipeline
        key = (config.seed, "genes", generation, slot)
        pipeline = mutate_merge(parent, family, search, *key)
    if search.mutation in ("weights", "both"):
        noise = Noise(
            rate=search.mutation_rate,
            sigma=search.mutation_sigma,
            relative_to=search.mutation_relative_to,
            seed=keys.seed(config.seed, "noise", generation, slot),
        )
    return Mutate(parent=elite, base=family.base, pipeline=pipeline, noise=noise)


class EliteLoser(Strategy):
    """The strategy of the source documents."""

    version = "elite-loser@1"
    settings = EliteLoserSearch

    @override
    def ask(self, past: Past) -> list[Proposal]:
        """Return proposals: pipelines at first, then mutants of the best and merges of the rest."""
        config, generation = past.config, past.coming
        if not past.generations:
            return first_generation(config, past.family)
        search = config.search_as(EliteLoserSearch)
        if strength(past) != 1.0:
            stronger = {
                "gene_sigma": search.gene_sigma * strength(past),
                "mutation_sigma": search.mutation_sigma * strength(past),
            }
            search = search.model_copy(update=stronger)
            config = config.model_copy(update={"search": search})
        pick = None
        if search.technique_selection == "earned":
            pick = partial(_earned, past)
        ranking = past.generations[-1].ranking
        again = generation in past.reseeded
        merges = (
            None if past.own else len(loser_slots(config))
        )  # another strategy's ranking can have another size
        return next_generation(
            config, past.family, past.recipes, ranking, generation, again, pick, merges
        )

    @override
    def stayed(self, past: Past) -> list[str]:
        search = past.config.search_as(EliteLoserSearch)
        if not search.keep_elites or not past.generations:
            return []
        return list(past.generations[-1].ranking[: search.elite_size])

    @override
    def loser_slots(self, config: EvoMergeConfig) -> tuple[int, ...]:
        """Return the slots that losers' merges or reseeded pipelines take."""
        return loser_slots(config)


def _earned(past: Past, draws: Draws) -> int:
    """Return a pipeline's number, chosen by the success of the pipelines so far."""
    allowed = past.config.search_as(EliteLoserSearch).pipelines
    names = ["-".join(PIPELINES[number]) for number in allowed]
    return allowed[names.index(chosen(past, names, draws))]
