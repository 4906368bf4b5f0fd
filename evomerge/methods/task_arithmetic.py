"""Task arithmetic: λ Σ wᵢ τᵢ (Ilharco et al. 2023, "Editing models with task arithmetic").

The plain sum is the definition; with `normalise` the weights are divided by their sum, and at λ = 1
that is the mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import BaseModel, ConfigDict

from evomerge.errors import ConfigError
from evomerge.methods import linear


class Params(BaseModel):
    """Parameters of `task_arithmetic`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights: tuple[float, ...] | None = None
    scale: float = 1.0
    normalise: bool = False


def merge(deltas: Sequence[torch.Tensor], params: Params) -> torch.Tensor:
    """The merged task vector of float32 task vectors of one shape."""
    weights = [1.0] * len(deltas) if params.weights is None else list(params.weights)
    if len(weights) != len(deltas):
        raise ConfigError(f"{len(weights)} weights for {len(deltas)} models: give one a model")
    if params.normalise:
        weights = linear.normalised(weights, len(deltas))
    return linear.combine(deltas, [weight * params.scale for weight in weights])
