"""Mutation of genes, of paths through layers and of techniques; and its adapted step size.

Pure. Mutation is keyed and bounded. Positive genes move on a log scale; genes with bounds are clipped.
Values are rounded to six decimals, so that the last bit of a mathematical library never reaches a
recipe's id. Techniques are chosen by how often their candidates were good.

Step size: the one-fifth rule (Rechenberg 1973). Steps grow if more than a fifth of the mutants are
better than their parents, shrink if fewer are, and stay at exactly a fifth. Parents and children of
one generation are compared by their scores, each relative to the best source on the same items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agent_forge.evomerge.recipes.recipe import (
    PIPELINES,
    Flow,
    Genes,
    Grouped,
    Merge,
    Pipeline,
    Recipe,
    Source,
    genome,
)
from agent_forge.evomerge.recipes.tensor_groups import replaceable
from agent_forge.evomerge.search.genes.genome import Space
from agent_forge.evomerge.search.strategy import Past, SourceFamily
from agent_forge.evomerge.search_settings import EliteLoserSearch, MutationSettings
from agent_forge.search.pareto import Draws

#: Probability that a mutation exchanges one stage's technique.
SWITCH = 0.1
#: Probability that a mutation moves one block of a frankenmerge.
MOVE_BLOCK = 0.5

#: A gene's step on the continuous genome, in [0, 1], as a multiple of `gene_sigma`.
STEP = 0.2

DROP_BOUNDS = (0.0, 0.95)
DENSITY_BOUNDS = (0.02, 1.0)
T_BOUNDS = (0.02, 0.98)
SCALE_BOUNDS = (0.02, 5.0)
EPSILON_BOUNDS = (1e-4, 10.0)


def _log_step(value: float, sigma: float, bounds: tuple[float, float], draws: Draws) -> float:
    return _clip(value * math.exp(sigma * draws.normal()), bounds)


def _step(value: float, sigma: float, bounds: tuple[float, float], draws: Draws) -> float:
    return _clip(value + sigma * draws.normal(), bounds)


def _clip(value: float, bounds: tuple[float, float]) -> float:
    return round(max(bounds[0], min(bounds[1], value)), 6)


def mutate_genes(pipeline: Pipeline, search: EliteLoserSearch, *key: str | int) -> Pipeline:
    """Return the pipeline with every active gene perturbed at random, by key.

    With probability SWITCH one stage's technique is exchanged too. If the exchange makes the
    pipeline a frankenmerge, its layers are still open: they are chosen later by measuring.
    """
    count = len(pipeline.inputs)
    draws = Draws(*key, count=64 + 4 * count)
    sigma, genes = search.gene_sigma, pipeline.genes
    changes: dict[str, object] = {"scale": _log_step(genes.scale, sigma, SCALE_BOUNDS, draws)}
    names = _switched(pipeline, search, draws)
    if names[0] == "linear":
        changes["weights"] = _weights(genes.weights, count, sigma, draws)
    else:
        ts = genes.ts or tuple(1 / (k + 1) for k in range(1, count))
        changes["ts"] = tuple(_step(t, sigma / 2, T_BOUNDS, draws) for t in ts)
    if names[1] == "dare":
        changes["drop"] = _step(genes.drop, sigma / 2, DROP_BOUNDS, draws)
    else:
        changes["density"] = _log_step(genes.density, sigma, DENSITY_BOUNDS, draws)
    if names[2] == "dfs":
        changes["epsilon"] = _log_step(genes.epsilon, 2 * sigma, EPSILON_BOUNDS, draws)
    elif genes.layers is not None:
        changes["layers"] = _moved(genes.layers, count, draws)
    return Pipeline(
        inputs=pipeline.inputs,
        base=pipeline.base,
        interpolation=names[0],
        arithmetic=names[1],
        selection=names[2],
        genes=Genes.model_validate({**genes.model_dump(), **changes}),
        seed=pipeline.seed,
    )


def _switched(pipeline: Pipeline, search: EliteLoserSearch, draws: Draws):
    """Return the names of the three stages; one is exchanged with probability SWITCH.

    The exchange is left out if the settings do not allow the resulting pipeline.
    """
    switch, stage = draws.chance(SWITCH), draws.below(3)
    other = pipeline.number ^ (4 >> stage)
    return PIPELINES[other if switch and other in search.pipelines else pipeline.number]


def _weights(
    weights: Sequence[float] | None, count: int, sigma: float, draws: Draws
) -> tuple[float, ...]:
    start = weights or (1 / count,) * count
    moved = [w * math.exp(sigma * draws.normal()) for w in start]
    return tuple(round(w / math.fsum(moved), 6) for w in moved)


def _moved(layers: tuple[int, ...], inputs: int, draws: Draws) -> tuple[int, ...]:
    """Return `layers`, with one block's choice redrawn with probability MOVE_BLOCK.

    The change is left out if it would replace more than a third of the blocks.
    """
    move, block, choice = (draws.chance(MOVE_BLOCK), draws.below(len(layers)), draws.below(inputs + 1))
    moved = (*layers[:block], choice, *layers[block + 1 :])
    allowed = sum(1 for c in moved if c) <= replaceable(len(layers))
    return moved if move and allowed else layers


def mutate_merge(
    merge: Pipeline | Grouped | Flow, family: SourceFamily, search: EliteLoserSearch, *key: str | int
) -> Pipeline | Grouped | Flow:
    """Return the pipeline or grouped recipe with its genes perturbed; a path is not changed."""
    if isinstance(merge, Pipeline):
        return mutate_genes(merge, search, *key)
    if isinstance(merge, Flow):
        return merge.model_copy(update={"merged": mutate_merge(merge.merged, family, search, *key)})
    space = Space(family, merge.name, "full", merge.depths)
    draws = Draws(*key, count=max(64, space.dimension))
    point = [x + STEP * search.gene_sigma * draws.normal() for x in space.point(merge, {})]
    return space.merge(point, merge.seed)


def rerouted(x: Sequence[float], space: Space, draws: Draws) -> list[float]:
    """Return `x` with, on average, one place of its path drawn again.

    Small steps would rarely change a place's category. Without paths `x` is not changed.
    """
    if space.paths is None:
        return list(x)
    child, first = list(x), space.merging
    for place in range(first, len(x), 2):
        touched, value = draws.chance(2 / space.paths.dimension), draws.uniform()
        child[place] = value if touched else child[place]
    return child


def technique(recipe: Recipe, past: Past) -> str | None:
    """Return the name of a candidate's species or pipeline; None for a source or fixed merge."""
    if isinstance(recipe, Source | Merge):
        return None
    merge = genome(recipe, past.recipes).pipeline
    return merge.merged.name if isinstance(merge, Flow) else merge.name


def earned(past: Past) -> dict[str, tuple[int, int]]:
    """Return {technique: (candidates in the better half of their generation, all candidates)}."""
    tallies: dict[str, tuple[int, int]] = {}
    for done in past.own:
        half = len(done.ranking) / 2
        for id_ in dict.fromkeys(done.slots[slot] for slot in sorted(done.slots)):
            name, place = technique(past.recipes[id_], past), done.places.get(id_)
            if name is not None and place is not None:
                good, all_ = tallies.get(name, (0, 0))
                tallies[name] = (good + (place < half), all_ + 1)
    return tallies


def chosen(past: Past, among: Sequence[str], draws: Draws) -> str:
    """Return the name of one technique among `among`, chosen at random.

    With `technique_selection: uniform` all techniques are equally likely. With `earned` the
    probability is proportional to the share of a technique's candidates that were in the better
    half; the counts start with one good and one bad candidate.
    """
    if past.config.search_as(MutationSettings).technique_selection == "uniform":
        return among[draws.below(len(among))]
    tallies = earned(past)
    shares = []
    for name in among:
        good, all_ = tallies.get(name, (0, 0))
        shares.append((good + 1) / (all_ + 2))
    place, total = draws.uniform() * sum(shares), 0.0
    for name, share in zip(among, shares, strict=True):
        total += share
        if place < total:
            return name
    return among[-1]


TARGET = 0.2
#: ln of the step's factor after a generation in which every mutant was better.
GAIN = 0.5
WEAKEST, STRONGEST = 0.1, 10.0


def strength(past: Past) -> float:
    """Return the factor, 0.1 to 10, on every step of the coming generation.

    It is 1 without `adaptive_mutation`.
    """
    if not past.config.search_as(MutationSettings).adaptive_mutation:
        return 1.0
    total = 0.0
    for before, done in zip(past.own, past.own[1:], strict=False):
        old, new = before.fitness, {**before.fitness, **done.fitness}
        better = []
        for slot, parents in sorted(done.parents.items()):
            child = done.fitness.get(done.slots.get(slot, ""))
            scores = [score for p in parents if (score := new.get(p, old.get(p))) is not None]
            if scores:
                better.append(child is not None and child > max(scores))
        if better:
            share = sum(better) / len(better)
            total += GAIN * (share - TARGET) / (1 - TARGET)
            total = min(math.log(STRONGEST), max(math.log(WEAKEST), total))
    return round(math.exp(total), 6)
