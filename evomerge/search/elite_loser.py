"""elite-loser@1: the best are mutated, the rest are merged by threes (SPEC §5).

    generation 0      the eight pipelines over the sources
    generation g + 1  each of the top E → M mutants; the bottom, by threes in order of rank → one
                      merge each by a random pipeline. E·M + (N − E)/3 = N

With `reseeded` the loser slots become random pipelines over the sources instead. Every random number
comes from a key (run seed, purpose, generation, slot).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evomerge import keys, randomness
from evomerge.config import EvoMergeConfig
from evomerge.recipe import PIPELINES, Genes, Mutate, Noise, Pipeline, Recipe, genome
from evomerge.search.mutation import Draws, mutate_genes

VERSION = "elite-loser@1"


@dataclass(frozen=True)
class Proposal:
    """What should be in a slot. A frankenmerge may have its layers still open."""

    slot: int
    kind: Literal["seeded", "merged", "mutated"]
    recipe: Pipeline | Mutate
    parents: tuple[str, ...] = ()

    @property
    def pipeline(self) -> Pipeline | None:
        """The pipeline that the recipe itself states, if it does."""
        return self.recipe if isinstance(self.recipe, Pipeline) else self.recipe.pipeline

    def with_layers(self, layers: tuple[int, ...]) -> Proposal:
        """The proposal with its open layers filled in."""
        pipeline = self.pipeline
        assert pipeline is not None
        genes = pipeline.genes.model_copy(update={"layers": layers})
        done = pipeline.model_copy(update={"genes": genes})
        if isinstance(self.recipe, Mutate):
            done = self.recipe.model_copy(update={"pipeline": done})
        return Proposal(self.slot, self.kind, done, self.parents)


@dataclass(frozen=True)
class Family:
    """The sources and what they are merged on."""

    sources: tuple[str, ...]
    base: str
    blocks: int


def first_generation(config: EvoMergeConfig, family: Family) -> list[Proposal]:
    """The allowed pipelines, each once in the order of their numbers.

    A smaller population takes a keyed choice of them; a larger one fills up with perturbed copies.
    """
    allowed = list(config.pipelines)
    size = config.population_size
    if size < len(allowed):
        order = randomness.permutation(len(allowed), config.seed, "first-generation")
        allowed = sorted(allowed[int(i)] for i in order[:size])
    proposals = []
    for slot in range(size):
        pipeline = _pipeline(config, family.sources, family, allowed[slot % len(allowed)], 0, slot)
        if slot >= len(allowed):
            pipeline = mutate_genes(pipeline, family.blocks, config, config.seed, "seed", 0, slot)
        proposals.append(Proposal(slot, "seeded", pipeline))
    return proposals


def next_generation(
    config: EvoMergeConfig,
    family: Family,
    known: Mapping[str, Recipe],
    ranking: Sequence[str],
    generation: int,
    reseeded: bool,
) -> list[Proposal]:
    """The proposals for `generation` from the ranking (best first) of the one before."""
    proposals: list[Proposal] = []
    elites = ranking[: config.elite_size]
    losers = ranking[config.elite_size : config.population_size]
    for elite in elites:
        for _ in range(config.mutants_per_elite):
            mutant = _mutant(config, family, known, elite, generation, len(proposals))
            proposals.append(Proposal(len(proposals), "mutated", mutant, (elite,)))
    for start in range(0, len(losers), 3):
        slot, trio = len(proposals), _trio(losers[start : start + 3], ranking)
        draws = Draws(config.seed, "pipeline", generation, slot)
        number = config.pipelines[draws.below(len(config.pipelines))]
        if reseeded:
            pipeline = _pipeline(config, family.sources, family, number, generation, slot)
            key = (config.seed, "reseed", generation, slot)
            pipeline = mutate_genes(pipeline, family.blocks, config, *key)
            proposals.append(Proposal(slot, "seeded", pipeline))
        else:
            pipeline = _pipeline(config, trio, family, number, generation, slot)
            proposals.append(Proposal(slot, "merged", pipeline, trio))
    return proposals


def _trio(losers: Sequence[str], ranking: Sequence[str]) -> tuple[str, ...]:
    """Three to merge. Where quarantine left fewer, the best of the others fill up."""
    others = [id_ for id_ in ranking if id_ not in losers]
    return (*losers, *others[: 3 - len(losers)])


def loser_slots(config: EvoMergeConfig) -> tuple[int, ...]:
    """The slots that losers' merges, or reseeded pipelines, go into."""
    return tuple(range(config.elite_size * config.mutants_per_elite, config.population_size))


def _pipeline(
    config: EvoMergeConfig,
    inputs: tuple[str, ...],
    family: Family,
    number: int,
    generation: int,
    slot: int,
) -> Pipeline:
    interpolation, arithmetic, selection = PIPELINES[number]
    return Pipeline(
        inputs=inputs,
        base=family.base,
        interpolation=interpolation,
        arithmetic=arithmetic,
        selection=selection,
        genes=Genes(drop=config.dare_drop, density=config.ties_density),
        seed=keys.seed(config.seed, "recipe", generation, slot),
    )


def _mutant(
    config: EvoMergeConfig,
    family: Family,
    known: Mapping[str, Recipe],
    elite: str,
    generation: int,
    slot: int,
) -> Mutate:
    pipeline, noise = None, None
    if config.mutation in ("genes", "both"):
        parent = genome(known[elite], known).pipeline
        key = (config.seed, "genes", generation, slot)
        pipeline = mutate_genes(parent, family.blocks, config, *key)
    if config.mutation in ("weights", "both"):
        noise = Noise(
            rate=config.mutation_rate,
            sigma=config.mutation_sigma,
            relative_to=config.mutation_relative_to,
            seed=keys.seed(config.seed, "noise", generation, slot),
        )
    return Mutate(parent=elite, base=family.base, pipeline=pipeline, noise=noise)
