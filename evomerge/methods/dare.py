"""DARE: drop and rescale (Yu et al. 2024, arXiv 2311.03099).

Each element of a task vector is dropped with probability p, the rest is divided by 1 − p, so that
the expectation is the task vector. p is a multiple of 1/65536 (16-bit lanes), and the rescaling
uses exactly that p. With `vote` the sparse task vectors are merged by TIES' sign election
("dare_ties"), else they are added up ("dare_linear").

Other rescalings are there for comparison: "l1" keeps each tensor's Σ|τ|, which is no estimate of τ;
"none" leaves what is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from evomerge import kernels, randomness
from evomerge.methods import linear, ties
from evomerge.stretches import Merge, Stretches, whole

Rescale = Literal["inverse_density", "l1", "none"]


class Params(BaseModel):
    """Parameters of `dare`; p = 0.9 is the paper's, for small task vectors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    drop: float | tuple[float, ...] = Field(default=0.9)
    weights: tuple[float, ...] | None = None
    scale: float = 1.0
    normalise: bool = True
    vote: bool = False
    rescale: Rescale = "inverse_density"


def dropped(drop: float) -> int:
    """How many of the LANES values of a lane mean that the element is dropped."""
    return min(round(drop * randomness.LANES), randomness.LANES - 1)


def factor(lanes: int) -> float:
    """1 / (1 − p) for so many lanes dropped."""
    return randomness.LANES / (randomness.LANES - lanes)


#: (cut, rows, out) → the rows made sparse, in `out`, which may be the rows.
Sparsify = Callable[[slice, torch.Tensor, torch.Tensor], torch.Tensor]


def sparsifier(
    work: Stretches, drop: float, *key: str | int, scale: float | None = None
) -> Sparsify:
    """A function that drops and rescales stretches of a tensor. `key` names the mask."""
    lost = dropped(drop)
    by = factor(lost) if scale is None else scale

    def sparse(cut: slice, rows: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        if drop >= 1.0:
            return out.zero_()
        if not lost:
            return rows if out is rows else out.copy_(rows)
        start = cut.start * work.columns
        lanes = randomness.lanes(rows.numel(), *key, "dare", start=start)
        return kernels.drop(rows, lanes, lost, by, out)

    return sparse


def _l1(work: Stretches, params: Params, drops: Sequence[float], seed: int) -> list[float]:
    """Σ|τ| before and after, each input's ratio: the factor that keeps the sum."""
    bare = [sparsifier(work, drop, seed, work.name, i, scale=1.0) for i, drop in enumerate(drops)]

    def sums(cut: slice, x: torch.Tensor) -> list[tuple[float, float]]:
        told = []
        for sparse, rows in zip(bare, x[1:], strict=True):
            before = float(rows.abs().sum(dtype=torch.float64))
            after = float(sparse(cut, rows, x[0]).abs().sum(dtype=torch.float64))
            told.append((before, after))
        return told

    totals = [map(sum, zip(*parts, strict=True)) for parts in zip(*work.each(sums), strict=True)]
    return [before / after if after else 0.0 for before, after in totals]


def prepare(work: Stretches, params: Params, seed: int) -> Merge:
    """Every input sparse by its own mask, then added up or voted on; times λ."""
    drops = ties.densities(params.drop, work.count)
    scales: list[float | None] = [None] * work.count
    if params.rescale == "none":
        scales = [1.0] * work.count
    elif params.rescale == "l1":
        scales = [*_l1(work, params, drops, seed)]
    sparse = [
        sparsifier(work, drop, seed, work.name, i, scale=scale)
        for i, (drop, scale) in enumerate(zip(drops, scales, strict=True))
    ]
    return merging(work, sparse, params)


def merging(work: Stretches, sparse: Sequence[Sparsify], params: Params) -> Merge:
    """Sparse inputs added up, or voted on (`params.vote`), with weights; times λ."""
    share = linear.normalised if params.normalise and not params.vote else linear.one_each
    weights = share(params.weights, work.count)

    def added(cut: slice, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x[0])
        for make, rows, weight in zip(sparse, x[1:], weights, strict=True):
            total.add_(make(cut, rows, x[0]), alpha=weight)
        return total if params.scale == 1.0 else total.mul_(params.scale)

    def voted(cut: slice, x: torch.Tensor) -> torch.Tensor:
        made = torch.empty_like(x[1:])
        for make, rows, out in zip(sparse, x[1:], made, strict=True):
            make(cut, rows, out)
        elected = kernels.vote(made, weights, normalise=params.normalise)
        return elected if params.scale == 1.0 else elected.mul_(params.scale)

    return voted if params.vote else added


def merge(delta: torch.Tensor, drop: float, *key: str | int) -> torch.Tensor:
    """The float32 task vector, sparse and rescaled; a new tensor. `key` names the mask."""

    def alone(work: Stretches) -> Merge:
        sparse = sparsifier(work, drop, *key)
        return lambda cut, x: sparse(cut, x[1], x[0])

    return whole([delta], alone)
