"""Linear: Σ wᵢ xᵢ / Σ wᵢ (model soups, Wortsman et al. 2022, arXiv 2203.05482).

On task vectors and on whole weights this is the same up to rounding. Weights are 1/n if none are
given; weights that add up to zero have no mean and are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches, whole
from agent_forge.evomerge.merging.kernels.fused_merge import StageProgram
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters

#: A sum of weights below this counts as zero.
SMALLEST_SUM = 1e-8


class Params(Parameters):
    """Parameters of `linear`. Without `normalise` the weights are taken as they are."""

    weights: tuple[float, ...] | None = None
    normalise: bool = True


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return Σ wᵢxᵢ / Σ wᵢ of float64 x [models, rows, columns], plainly."""
    weights = torch.tensor(params.weights or [1.0] * len(x), dtype=x.dtype)
    if params.normalise:
        weights = weights / weights.sum()
    return torch.tensordot(weights, x, dims=1)


def one_each(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return `count` weights, 1 if none are given. Raise ConfigError for a wrong number."""
    if weights is None:
        return [1.0] * count
    if len(weights) != count:
        raise ConfigError(f"{len(weights)} weights for {count} models: give one weight a model")
    return list(weights)


def normalised(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return `count` weights that add up to 1.

    Raise ConfigError for a wrong number or a zero sum.
    """
    if weights is None:
        return [1.0 / count] * count
    weights = one_each(weights, count)
    total = sum(weights)
    if abs(total) < SMALLEST_SUM:
        raise ConfigError(
            f"the weights {weights} add up to {total:g}: a weighted mean needs another sum"
        )
    return [w / total for w in weights]


def combining(factors: Sequence[float], columns: int) -> StageProgram:
    """Return the `StageProgram` of Σ factor · input for inputs of `columns` columns."""
    return StageProgram(len(factors), columns, factors=tuple(factors))


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge` to the weighted mean, or sum."""
    share = normalised if params.normalise else one_each
    return combining(share(params.weights, work.count), work.columns)


def merge(inputs: Sequence[torch.Tensor], weights: Sequence[float] | None = None) -> torch.Tensor:
    """Return a new tensor: the weighted mean of float32 tensors of one shape."""
    params = Params(weights=None if weights is None else tuple(weights))
    return whole(inputs, lambda work: prepare(work, params))
