"""Linear: Σ wᵢ xᵢ / Σ wᵢ (model soups, Wortsman et al. 2022).

On task vectors and on whole weights this is the same up to rounding. Weights are 1/n where none
are given; weights that add up to zero have no mean and are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import BaseModel, ConfigDict

from evomerge.errors import ConfigError

#: Below this the sum of weights counts as zero.
SMALLEST_SUM = 1e-8


class Params(BaseModel):
    """Parameters of `linear`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights: tuple[float, ...] | None = None


def normalised(weights: Sequence[float] | None, count: int) -> list[float]:
    """`count` weights that add up to 1. Raises ConfigError for a wrong number or a zero sum."""
    if weights is None:
        return [1.0 / count] * count
    if len(weights) != count:
        raise ConfigError(f"{len(weights)} weights for {count} models: give one weight a model")
    total = sum(weights)
    if abs(total) < SMALLEST_SUM:
        raise ConfigError(
            f"the weights {list(weights)} add up to {total:g}: a weighted mean needs another sum"
        )
    return [w / total for w in weights]


def combine(inputs: Sequence[torch.Tensor], factors: Sequence[float]) -> torch.Tensor:
    """Σ factor · x of float32 tensors of one shape, in order; a new tensor."""
    result = inputs[0] * factors[0]
    for tensor, factor in zip(inputs[1:], factors[1:], strict=True):
        result.add_(tensor, alpha=factor)
    return result


def merge(inputs: Sequence[torch.Tensor], weights: Sequence[float] | None = None) -> torch.Tensor:
    """The weighted mean of float32 tensors of one shape; a new tensor."""
    return combine(inputs, normalised(weights, len(inputs)))
