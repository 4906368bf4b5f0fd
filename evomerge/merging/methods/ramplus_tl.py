"""RAM+, tensor by tensor: RAM with the changes of one model alone scaled up.

Source: Yuan et al. 2026, arXiv 2601.13572; "ramplus_tl" in mergekit.

As in `ram`, but an element that model i alone has changed is multiplied by λᵢ. λᵢ grows with the
share of the model's changes that others dilute:

    ρᵢ = elements of i that others have changed, too / elements that i alone has changed
    λᵢ = 1 + r · min(ρᵢ, α)

The paper counts over the whole model, this module over each tensor. A model that changed nothing
alone in a tensor has nothing to be multiplied there.
"""

from __future__ import annotations

import torch
from pydantic import Field

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.methods.ram import changed
from agent_forge.weights.recipes import Parameters


class Params(Parameters):
    """Parameters of `ramplus_tl`. ε is in units of the weights."""

    r: float = 0.1
    alpha: float = Field(default=0.2, ge=0)
    epsilon: float = Field(default=1e-5, ge=0)


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the merge of float64 task vectors [models, rows, columns], plainly."""
    masks = x.abs() > params.epsilon
    owners = masks.sum(dim=0)
    total = torch.zeros_like(x[0])
    for delta, mask in zip(x, masks, strict=True):
        own_mask, shared = mask & (owners == 1), mask & (owners > 1)
        rho = float(shared.sum() / own_mask.sum()) if own_mask.any() else 0.0
        total += own_mask * delta * (1 + params.r * min(rho, params.alpha))
        total += shared * delta / owners.clamp(min=1)
    return total


def factors(shared: list[int], own_counts: list[int], params: Params) -> list[float]:
    """Return λ of every model from its numbers of changed elements, shared and alone."""
    ratios = [a / b if b else 0.0 for a, b in zip(shared, own_counts, strict=True)]
    return [1.0 + params.r * min(ratio, params.alpha) for ratio in ratios]


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge`, after counting which models changed each element of the tensor."""

    def count(_: slice, x: torch.Tensor) -> torch.Tensor:
        masks = changed(x, params.epsilon)
        alone = masks.sum(dim=0) == 1
        return torch.stack([(masks & there).sum(dim=(1, 2)) for there in (~alone, alone)]).cpu()

    totals = sum(work.each(count), torch.zeros(2, work.count, dtype=torch.int64))
    shared, own_counts = totals.tolist()
    scales = factors(shared, own_counts, params)

    def merged(_: slice, x: torch.Tensor) -> torch.Tensor:
        masks = changed(x, params.epsilon)
        owners = masks.sum(dim=0)
        alone, share = owners == 1, 1.0 / owners.clamp_(min=1)
        total = torch.zeros_like(x[0])
        for row, mask, scale in zip(x[1:], masks, scales, strict=True):
            total.add_(row * mask * torch.where(alone, scale, share))
        return total

    return merged
