"""TIES: trim, elect sign, disjoint merge (Yadav et al. 2023, arXiv 2306.01708, algorithm 1).

For task vectors τᵢ with weights wᵢ:

    TRIM   keep the k = round(density · n) largest |τ|, and every other |τ| equal to the k-th
    ELECT  s = sign(Σ wᵢ τᵢ), zero counts as +
    MERGE  Σ wᵢτᵢ / Σ |wᵢ| over the inputs whose wᵢτᵢ has the sign s; zero if there are none

The divisor has |wᵢ|, so that a negative weight is the weight |wᵢ| of the opposite task vector and
the mean stays between its voters (a divisor of signed weights may come near zero: factors of 189
have been seen). Thresholds are measured for each tensor, unless `thresholds` gives one for each
model, as in the paper's own code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from pydantic import Field

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches, whole
from agent_forge.evomerge.merging.kernels.fused_merge import StageProgram, Vote, Voters
from agent_forge.evomerge.merging.methods import linear
from agent_forge.evomerge.merging.methods.kth_magnitude import kth_magnitudes
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters


class Params(Parameters):
    """Parameters of `ties`. A density may be given for each model."""

    density: float | tuple[float, ...] = Field(default=0.2)
    weights: tuple[float, ...] | None = None
    scale: float = 1.0
    normalise: bool = True
    #: The smallest |τ| kept of each model, if known (one threshold for a whole model).
    thresholds: tuple[float, ...] | None = None


def densities(setting: float | Sequence[float], count: int) -> list[float]:
    """Return `count` densities, one a model. Raise ConfigError for another number, or beyond 0 to 1."""
    model_densities = (
        [float(setting)] * count if isinstance(setting, int | float) else [*map(float, setting)]
    )
    if len(model_densities) != count:
        raise ConfigError(
            f"{len(model_densities)} densities for {count} models: give one, or one a model"
        )
    if any(not 0 <= density <= 1 for density in model_densities):
        raise ConfigError(f"a density is a share from 0 to 1, not {model_densities}")
    return model_densities


def kept(density: float, count: int) -> int:
    """Return the number of elements, of `count`, that TRIM keeps: round(density · count)."""
    return min(round(density * count), count)


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the merge of float64 task vectors [models, rows, columns] by algorithm 1, plainly."""
    trimmed = torch.zeros_like(x)
    for i, density in enumerate(densities(params.density, len(x))):
        k, size = kept(density, x[i].numel()), x[i].abs()
        least = size.flatten().sort(descending=True).values[k - 1] if k else math.inf
        if params.thresholds:
            least = params.thresholds[i]
        trimmed[i] = torch.where(size >= least, x[i], 0.0)
    weights = linear.one_each(params.weights, len(x))
    return params.scale * elect_and_merge(trimmed, weights, params.normalise)


def elect_and_merge(x: torch.Tensor, weights: Sequence[float], normalise: bool = True) -> torch.Tensor:
    """Return ELECT and MERGE of sparse float64 task vectors [models, rows, columns], plainly."""
    by = torch.tensor(weights, dtype=x.dtype).view(-1, 1, 1)
    sign = torch.where((by * x).sum(dim=0) >= 0, 1.0, -1.0)
    agrees = by * x * sign > 0
    total = (by * x * agrees).sum(dim=0)
    share = (by.abs() * agrees).sum(dim=0)
    return total / torch.where(share > 0, share, 1.0) if normalise else total


def thresholds(work: Stretches, ks: Sequence[int]) -> list[float]:
    """Return the k-th largest |τ| of each input; 0 if k is all of them, infinity if k is 0."""
    keys = [("threshold", i, k) for i, k in enumerate(ks)]
    for key in keys:
        if key[2] in (0, work.size):
            work.once(key, lambda k=key[2]: 0.0 if k else math.inf)
    unknown = [key for key in keys if not work.has(key)]
    if unknown:
        magnitudes = kth_magnitudes(
            work, [k for *_, k in unknown], Voters([1 + i for _, i, _ in unknown])
        )
        for key, value in zip(unknown, magnitudes, strict=True):
            work.once(key, lambda value=value: value)
    return [work.once(key, lambda: math.nan) for key in keys]


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge`: trim, elect, merge; times λ."""
    weights = linear.one_each(params.weights, work.count)
    smallest = params.thresholds
    if smallest is None:
        shares = densities(params.density, work.count)
        smallest = thresholds(work, [kept(d, work.size) for d in shares])

    vote = Vote(weights, smallest, normalise=params.normalise)
    return StageProgram(work.count, work.columns, vote=vote, scale=params.scale)


def merge(
    deltas: Sequence[torch.Tensor], density: float, weights: Sequence[float] | None = None
) -> torch.Tensor:
    """Return a new tensor: the merged task vector of float32 task vectors of one shape."""
    params = Params(density=density, weights=None if weights is None else tuple(weights))
    return whole(deltas, lambda work: prepare(work, params))
