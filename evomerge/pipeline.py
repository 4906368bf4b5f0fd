"""The 2³ pipelines (SPEC §4), fused: interpolation → task arithmetic → selection, one tensor at a time.

Nothing is rounded between stages. Every stage after the first merges what the stage before it made
together with the sources; dare alone makes only the consensus sparse.
"""

from __future__ import annotations

import torch

from evomerge import kernels
from evomerge.methods import dare, dfs, frankenmerge, linear, slerp, ties
from evomerge.methods.select import kth_magnitudes
from evomerge.recipe import Genes, Pipeline
from evomerge.stretches import Merge, Stretches


def taken(recipe: Pipeline, name: str) -> int:
    """The input (from 1) that a tensor is taken from whole; 0 where the stages make it."""
    layer = frankenmerge.block(name)
    if recipe.selection == "dfs" or layer is None or not recipe.genes.layers:
        return 0
    return recipe.genes.layers[layer]


def prepare(work: Stretches, recipe: Pipeline) -> Merge:
    """The stages of one tensor, all but the block that is `taken`."""
    genes, chosen = recipe.genes, taken(recipe, work.name)
    if chosen:
        return copying(chosen, genes.scale)
    arithmetic = _arithmetic(work, recipe)

    def merged(cut: slice, x: torch.Tensor) -> torch.Tensor:
        made = arithmetic(cut, x)
        if recipe.selection == "dfs":
            if made is not x[0]:
                x[0].copy_(made)
            made = kernels.select_rows(x, genes.epsilon, out=x[0])
        return made if genes.scale == 1.0 else made.mul_(genes.scale)

    if recipe.selection == "dfs":
        dfs.check(1 + work.count)
    return merged


def copying(place: int, scale: float) -> Merge:
    """One input's task vector, scaled."""
    return lambda _, x: torch.mul(x[place], scale, out=x[0])


def _arithmetic(work: Stretches, recipe: Pipeline) -> Merge:
    """Stages 1 and 2."""
    genes = recipe.genes
    if recipe.interpolation == "linear":
        factors = linear.normalised(genes.weights, work.count)
    else:
        factors = slerp.fold(work.gram(), genes.ts)
    if recipe.arithmetic == "ties":
        return _voting(work, genes, factors)
    sparse = dare.sparsifier(work, genes.drop, recipe.seed, work.name, 0)
    return lambda cut, x: sparse(cut, linear.combine(x, factors), x[0])


def _voting(work: Stretches, genes: Genes, factors: list[float]) -> Merge:
    """Ties over the consensus, which comes first, and all inputs."""
    k, size = ties.kept(genes.density, work.size), work.size
    ones = [1.0] * (1 + work.count)
    if k in (0, size):
        smallest = [0.0 if k else float("inf")] * len(ones)
    else:
        smallest = _thresholds(work, k, factors)

    def voted(_: slice, x: torch.Tensor) -> torch.Tensor:
        linear.combine(x, factors)
        return kernels.vote(x, ones, smallest, out=x[0])

    return voted


def _thresholds(work: Stretches, k: int, factors: list[float]) -> list[float]:
    """Those of the consensus and of the inputs, in the same passes; the inputs' are kept."""
    keys = [("threshold", i, k) for i in range(work.count)]
    unknown = [i for i, key in enumerate(keys) if not work.has(key)]

    def voters(_: slice, x: torch.Tensor) -> list[torch.Tensor]:
        return [linear.combine(x, factors), *(x[1 + i] for i in unknown)]

    consensus, *found = kth_magnitudes(work, [k] * (1 + len(unknown)), voters)
    for i, value in zip(unknown, found, strict=True):
        work.once(keys[i], lambda value=value: value)
    return [consensus, *(work.once(key, lambda: float("nan")) for key in keys)]
