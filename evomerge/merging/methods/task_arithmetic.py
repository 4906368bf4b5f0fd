"""Task arithmetic: λ Σ wᵢ τᵢ (Ilharco et al. 2023, "Editing models with task arithmetic").

The plain sum is the definition; with `normalise` the weights are divided by their sum, and at λ = 1
that is the mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches, whole
from agent_forge.evomerge.merging.methods import linear


class Params(linear.Params):
    """Parameters of `task_arithmetic`."""

    scale: float = 1.0
    normalise: bool = False


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return λ Σ wᵢτᵢ of float64 task vectors [models, rows, columns], plainly (section 2)."""
    weights = torch.tensor(params.weights or [1.0] * len(x), dtype=x.dtype)
    if params.normalise:
        weights = weights / weights.sum()
    return params.scale * torch.tensordot(weights, x, dims=1)


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge`: the scaled sum of task vectors."""
    share = linear.normalised if params.normalise else linear.one_each
    factors = [w * params.scale for w in share(params.weights, work.count)]
    return linear.combining(factors, work.columns)


def merge(deltas: Sequence[torch.Tensor], params: Params) -> torch.Tensor:
    """Return the merged task vector of float32 task vectors of one shape."""
    return whole(deltas, lambda work: prepare(work, params))
