"""Pipelines (2³, SPEC §4), fused: interpolation → task arithmetic → selection, tensor by tensor.

Nothing is rounded between stages. Every stage after the first merges the result of the stage before
it together with the sources. Only dare differs: it makes the consensus sparse.

The technique `stages` of `method_registry` is a whole pipeline: "linear-ties-dfs" or one of its seven
siblings.
"""

from __future__ import annotations

import math

from agent_forge.evomerge.merging.kernels.chunks import Stretches
from agent_forge.evomerge.merging.kernels.fused_merge import StageProgram, Vote, Voters
from agent_forge.evomerge.merging.methods import dare, dfs, linear, slerp, ties
from agent_forge.evomerge.merging.methods.kth_magnitude import kth_magnitudes
from agent_forge.evomerge.recipes.recipe import PIPELINES, Genes, Selection
from agent_forge.weights import block_names
from agent_forge.weights.recipes import Parameters

#: Name → (interpolation, arithmetic, selection).
NAMES = {"-".join(stages): stages for stages in PIPELINES}


class Params(Parameters):
    """A pipeline's name, as "slerp-dare-dfs", and its genes."""

    name: str
    genes: Genes = Genes()


def taken(selection: Selection, genes: Genes, name: str) -> int:
    """Return the input, from 1, that is taken whole for a tensor; 0 if the stages make the tensor."""
    layer = block_names.block_of(name)
    if selection == "dfs" or layer is None or not genes.layers:
        return 0
    return genes.layers[layer]


def prepare(work: Stretches, params: Params, seed: int) -> StageProgram:
    """Return the `StageProgram` of one tensor; of a block that is `taken`, only the scaled input."""
    genes, (interpolation, arithmetic, selection) = params.genes, NAMES[params.name]
    chosen = taken(selection, genes, work.name)
    if chosen:
        return StageProgram(work.count, work.columns, taken=chosen, scale=genes.scale)
    if interpolation == "linear":
        consensus = tuple(linear.normalised(genes.weights, work.count))
    else:
        consensus = tuple(slerp.fold(work.gram(), genes.ts))
    if selection == "dfs":
        dfs.check(1 + work.count)
    return StageProgram(
        work.count,
        work.columns,
        factors=consensus,
        drops={0: dare.mask(genes.drop, seed, work.name, 0)} if arithmetic == "dare" else {},
        vote=_voting(work, genes, consensus) if arithmetic == "ties" else None,
        epsilon=genes.epsilon if selection == "dfs" else None,
        scale=genes.scale,
    )


def _voting(work: Stretches, genes: Genes, factors: tuple[float, ...]) -> Vote:
    """Return the TIES vote over the consensus, which comes first, and all inputs."""
    k, voters = ties.kept(genes.density, work.size), 1 + work.count
    if k in (0, work.size):
        return Vote([1.0] * voters, [0.0 if k else math.inf] * voters)
    return Vote([1.0] * voters, _thresholds(work, k, factors))


def _thresholds(work: Stretches, k: int, factors: tuple[float, ...]) -> list[float]:
    """Return the thresholds [consensus, inputs …] of the same passes; cache them for other recipes."""
    keys = [("consensus", factors, k), *(("threshold", i, k) for i in range(work.count))]
    unknown = [layer for layer, key in enumerate(keys) if not work.has(key)]
    if unknown:
        magnitudes = kth_magnitudes(work, [k] * len(unknown), Voters(unknown, factors))
        for layer, value in zip(unknown, magnitudes, strict=True):
            work.once(keys[layer], lambda value=value: value)
    return [work.once(key, lambda: math.nan) for key in keys]
