"""DARE: drop and rescale (Yu et al. 2024, arXiv 2311.03099).

Each element of a task vector is dropped with probability p, and the others are divided by 1 − p, so
that the expectation is the task vector. p is a multiple of 1/65536 (16-bit lanes), and the
rescaling uses exactly that p. With `vote` the sparse task vectors are merged by TIES' sign election
("dare_ties"), else they are added up ("dare_linear").

Other rescalings are there for comparison: "l1" keeps each tensor's Σ|τ|, which is no estimate of τ;
"none" leaves what is kept as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches, whole
from agent_forge.evomerge.merging.kernels.fused_merge import Drop, StageProgram, Vote
from agent_forge.evomerge.merging.methods import linear, ties
from agent_forge.weights import randomness
from agent_forge.weights.recipes import Parameters

Rescale = Literal["inverse_density", "l1", "none"]


class Params(Parameters):
    """Parameters of `dare`; p = 0.9 is the paper's, for small task vectors."""

    drop: float | tuple[float, ...] = Field(default=0.9)
    weights: tuple[float, ...] | None = None
    scale: float = 1.0
    normalise: bool = True
    vote: bool = False
    rescale: Rescale = "inverse_density"


def dropped(drop: float) -> int:
    """Return the number of a lane's LANES values that drop the element; LANES if `drop` is 1."""
    if drop >= 1.0:
        return randomness.LANES
    return min(round(drop * randomness.LANES), randomness.LANES - 1)


def factor(lanes: int) -> float:
    """Return 1 / (1 − p) if `lanes` of a lane's LANES values drop the element; 1 if all do."""
    return randomness.LANES / (randomness.LANES - lanes) if lanes < randomness.LANES else 1.0


def mask(drop: float, *key: str | int, scale: float | None = None) -> Drop:
    """Return the `Drop` of a task vector; `key` names its mask; `scale` replaces 1 / (1 − p)."""
    lost = dropped(drop)
    return Drop(lost, factor(lost) if scale is None else scale, (*key, "dare"))


def reference(x: torch.Tensor, params: Params, uniform: torch.Tensor) -> torch.Tensor:
    """Return the merge of float64 task vectors [models, rows, columns], plainly.

    `uniform` has a random number of [0, 1) for each element: it is dropped if that is below p.
    """
    sparse = torch.zeros_like(x)
    for i, drop in enumerate(ties.densities(params.drop, len(x))):
        p = dropped(drop) / randomness.LANES
        row = torch.where(uniform[i] >= p, x[i], 0.0)
        if params.rescale == "inverse_density" and p < 1:
            row = row / (1 - p)
        if params.rescale == "l1" and row.any():
            row = row * x[i].abs().sum() / row.abs().sum()
        sparse[i] = row
    if params.vote:
        weights = linear.one_each(params.weights, len(x))
        return params.scale * ties.elect_and_merge(sparse, weights, params.normalise)
    linear_params = linear.Params(weights=params.weights, normalise=params.normalise)
    return params.scale * linear.reference(sparse, linear_params)


def _l1(work: Stretches, bare: Sequence[Drop]) -> list[float]:
    """Return for each input the factor that keeps its sum: Σ|τ| before the drop / Σ|τ| after."""

    def sums(cut: slice, x: torch.Tensor) -> list[tuple[float, float]]:
        norms = []
        for drop, rows in zip(bare, x[1:], strict=True):
            sparse = drop.of(rows, cut.start * work.columns)
            norms.append(tuple(float(v.abs().sum(dtype=torch.float64)) for v in (rows, sparse)))
        return norms

    totals = [map(sum, zip(*parts, strict=True)) for parts in zip(*work.each(sums), strict=True)]
    return [before / after if after else 0.0 for before, after in totals]


def prepare(work: Stretches, params: Params, seed: int) -> Merge:
    """Return the `Merge`: inputs made sparse by their masks, added up or voted on, times λ."""
    drops = ties.densities(params.drop, work.count)
    keyed = [(drop, seed, work.name, i) for i, drop in enumerate(drops)]
    masks = [mask(*key) for key in keyed]
    if params.rescale != "inverse_density":
        masks = [mask(*key, scale=1.0) for key in keyed]
    if params.rescale == "l1":
        scales = _l1(work, masks)
        masks = [mask(*key, scale=scale) for key, scale in zip(keyed, scales, strict=True)]
    share = linear.normalised if params.normalise and not params.vote else linear.one_each
    weights = tuple(share(params.weights, work.count))
    return StageProgram(
        work.count,
        work.columns,
        drops={i: drop for i, drop in enumerate(masks, start=1) if drop.lost or drop.factor != 1.0},
        factors=None if params.vote else weights,
        vote=Vote(weights, normalise=params.normalise) if params.vote else None,
        scale=params.scale,
    )


def merge(delta: torch.Tensor, drop: float, *key: str | int) -> torch.Tensor:
    """Return a new float32 tensor: the task vector, sparse and rescaled. `key` names the mask."""
    return whole([delta], lambda work: StageProgram(1, work.columns, drops={1: mask(drop, *key)}))
