"""Multi-SLERP: the mean direction of any number of models (Goddard 2025, "multislerp" in mergekit).

    u = v / ‖v‖,  m = Σ wu / ‖Σ wu‖
    multislerp(v₁, …) = Σ w‖v‖ · m

With a base the vᵢ are task vectors, without one the weights themselves. The published procedure
then moves m along Σ wᵢ(uᵢ − ⟨uᵢ, m⟩m), the weighted sum of the parts at a right angle to m. That
sum is Σ wu less its own projection on m. m has the direction of Σ wu, so the sum is zero, and the
step is left out. (The mean of arcs is `karcher`.)

The result is a combination of the inputs, by the dot products of the whole tensors. Zero tensors
have no direction. If the directions cancel there is no mean, and the straight Σ wv is taken.
mergekit does so for two models and ends in an error for more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.methods import linear


class Params(linear.Params):
    """Parameters of `multislerp`. Without `normalise` the weights are taken as they are."""

    #: ‖Σ wu‖ below which the directions count as cancelling.
    eps: float = Field(default=1e-6, gt=0)


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the merge of float64 x [models, rows, columns] with the tangent step, plainly."""
    if len(x) == 1:
        return x[0]
    weights = torch.tensor(params.weights or [1.0] * len(x), dtype=x.dtype)
    if params.normalise:
        weights = weights / weights.sum()
    lengths = x.norm(dim=(1, 2), keepdim=True)
    units = torch.where(lengths > 0, x / lengths, 0.0)
    mean = torch.tensordot(weights, units, dims=1)
    if mean.norm() < params.eps:
        return torch.tensordot(weights, x, dims=1)
    mean = mean / mean.norm()
    tangents = units - (units * mean).sum(dim=(1, 2), keepdim=True) * mean
    step = torch.tensordot(weights, tangents, dims=1)
    size = step.norm() + 1e-30
    moved = size.cos() * mean + size.sin() / size * step
    return moved * (weights @ lengths.flatten())


def factors(products: NDArray[np.float64], weights: Sequence[float], eps: float = 1e-6) -> list[float]:
    """Return the factor of every input in the merge, from their [n, n] dot products."""
    if len(weights) == 1:
        return [1.0]
    lengths = np.sqrt(np.maximum(np.diag(products), 0.0))
    share = np.divide(weights, lengths, out=np.zeros_like(lengths), where=lengths > 0.0)
    length = np.sqrt(max(float(share @ products @ share), 0.0))
    if length < eps:
        return list(weights)
    return list(map(float, share * (float(weights @ lengths) / length)))


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge`: the combination by the dot products of the whole tensors."""
    share = linear.normalised if params.normalise else linear.one_each
    weights = share(params.weights, work.count)
    return linear.combining(factors(work.gram(), weights, params.eps), work.columns)
