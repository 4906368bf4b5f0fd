"""Model breadcrumbs: drop the largest and the smallest elements of task vectors.

Source: Davari and Belilovsky 2023, arXiv 2312.06795.

From each task vector, the top γ·n elements by |τ| (outliers) are dropped, and as many of the
smallest that density·n remain. In the paper's words β = 1 − density − γ. If density + γ is above 1
there is no such β, and density·n remain all the same: nothing is dropped at the bottom, fewer than
γ·n at the top, none at density 1.

With `vote` the remaining elements are merged by TIES' sign election, else they are added up. Counts
are rounded to the nearest, and every |τ| equal to one of the two bounds is kept.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.kernels.fused_merge import StageProgram, Vote, Voters
from agent_forge.evomerge.merging.methods import linear, ties
from agent_forge.evomerge.merging.methods.kth_magnitude import kth_magnitudes
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters


class Params(Parameters):
    """Parameters of `breadcrumbs`. Densities and gammas may be given for each model."""

    density: float | tuple[float, ...] = Field(default=0.9)
    gamma: float | tuple[float, ...] = Field(default=0.01)
    weights: tuple[float, ...] | None = None
    scale: float = 1.0
    normalise: bool = False
    vote: bool = False


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the merge of float64 task vectors [models, rows, columns], masked by sorting, plainly."""
    masked, n = torch.zeros_like(x), x[0].numel()
    shares = ties.densities(params.density, len(x))
    for i, gamma in enumerate(ties.densities(params.gamma, len(x))):
        k = ties.kept(shares[i], n)
        top = min(ties.kept(gamma, n), n - k)
        size = x[i].abs()
        ranked = size.flatten().sort(descending=True).values
        if k:
            within = (size >= ranked[top + k - 1]) & (size <= ranked[top])
            masked[i] = torch.where(within, x[i], 0.0)
    if params.vote:
        weights = linear.one_each(params.weights, len(x))
        return params.scale * ties.elect_and_merge(masked, weights, params.normalise)
    linear_params = linear.Params(weights=params.weights, normalise=params.normalise)
    return params.scale * linear.reference(masked, linear_params)


def bounds(work: Stretches, density: list[float], gamma: list[float]) -> list[tuple[float, float]]:
    """Return [(least, largest |τ| kept)] by input: 0, ∞ at an end with no drop; (∞, 0) if all drop."""
    ranks: list[tuple[int, int] | None] = []
    for share, outliers in zip(density, gamma, strict=True):
        count = ties.kept(share, work.size)
        top = min(ties.kept(outliers, work.size), work.size - count)
        ranks.append((top + count, top + 1) if count else None)
    queries = [(i, k) for i, pair in enumerate(ranks) if pair for k in pair]
    magnitudes = iter(
        kth_magnitudes(work, [k for _, k in queries], Voters([1 + i for i, _ in queries]))
        if queries
        else []
    )
    result = []
    for pair in ranks:
        if pair is None:
            result.append((math.inf, 0.0))
            continue
        low, high = next(magnitudes), next(magnitudes)
        # If nothing is dropped at an end, there is no bound at that end.
        result.append((0.0 if pair[0] == work.size else low, math.inf if pair[1] == 1 else high))
    return result


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge`: a sum or a vote of what lies between measured bounds, times λ."""
    gammas = ties.densities(params.gamma, work.count)
    limits = bounds(work, ties.densities(params.density, work.count), gammas)
    low, high = [pair[0] for pair in limits], [pair[1] for pair in limits]
    share = linear.normalised if params.normalise and not params.vote else linear.one_each
    weights = share(params.weights, work.count)
    if any(not math.isfinite(w) for w in weights):
        raise ConfigError(f"breadcrumbs: weights {weights} are not numbers")

    if params.vote:
        vote = Vote(weights, low, high, params.normalise)
        return StageProgram(work.count, work.columns, vote=vote, scale=params.scale)

    def merged(_: slice, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x[0])
        for row, a, b, weight in zip(x[1:], low, high, weights, strict=True):
            size = row.abs()
            total.add_(row * ((size >= a) & (size <= b)), alpha=weight)
        return total if params.scale == 1.0 else total.mul_(params.scale)

    return merged
