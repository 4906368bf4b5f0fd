"""SCE: select, calculate, erase (Wan et al. 2024, "FuseChat", arXiv 2408.07990, section 3.3).

    SELECT     keep the elements whose variance over the models is among the largest
               `density` of the tensor
    CALCULATE  wᵢ = mean of τᵢ² over the tensor, of the kept elements, divided by the
               sum over the models
    ERASE      drop what is against the sign of Σ τ
    result     Σ wτ / Σ w over what is left; zero if nothing is left

Every variance equal to the k-th is kept. A tensor whose task vectors are all zero keeps the base.
"""

from __future__ import annotations

import torch
from pydantic import Field

from agent_forge.evomerge.merging.kernels import inner_loops
from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.methods import ties
from agent_forge.evomerge.merging.methods.kth_magnitude import kth_magnitudes
from agent_forge.weights.recipes import Parameters


class Params(Parameters):
    """Parameters of `sce`."""

    density: float = Field(default=1.0, ge=0, le=1)
    scale: float = 1.0


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the merge of float64 task vectors [models, rows, columns] as in section 3.3, plainly."""
    spread = x.var(dim=0, unbiased=False)
    k = ties.kept(params.density, spread.numel())
    least = spread.flatten().sort(descending=True).values[k - 1] if k else torch.inf
    selected = x * (spread >= least)  # SELECT
    energy = selected.square().sum(dim=(1, 2), keepdim=True)
    weights = energy / energy.sum().clamp(min=1e-300)  # CALCULATE
    sign = torch.where(selected.sum(dim=0) >= 0, 1.0, -1.0)
    agrees = selected * sign > 0  # ERASE
    share = (weights * agrees).sum(dim=0)
    mixed = (weights * selected * agrees).sum(dim=0)
    return params.scale * mixed / torch.where(share > 0, share, 1.0)


def variance(x: torch.Tensor) -> torch.Tensor:
    """Return the variance [...] over the first dimension of [models, ...], float32."""
    mean = x.mean(dim=0)
    total = torch.zeros_like(mean)
    for row in x:
        total.add_((row - mean).square_())
    return total.div_(len(x))


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge`, a weighted vote times λ, after measuring the threshold and energies."""
    k = ties.kept(params.density, work.size)
    if k == 0:
        return lambda _, x: x[0].zero_()
    least = 0.0
    if k < work.size:
        (least,) = kth_magnitudes(work, [k], lambda _, x: [variance(x[1:])])

    def selected(x: torch.Tensor) -> torch.Tensor:
        return x[1:] if least == 0.0 else x[1:] * (variance(x[1:]) >= least)

    def energy(_: slice, x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([inner_loops.gram(row[None])[0, 0] for row in selected(x)])

    energies = sum(work.each(energy), torch.zeros(work.count, dtype=torch.float64))
    total = float(energies.sum())
    if total == 0.0:
        return lambda _, x: x[0].zero_()
    weights = [float(e) / total for e in energies]

    def merged(_: slice, x: torch.Tensor) -> torch.Tensor:
        rows = selected(x)
        sign = torch.where(rows.sum(dim=0) >= 0, 1.0, -1.0)
        mixed, share = torch.zeros_like(sign), torch.zeros_like(sign)
        for row, weight in zip(rows, weights, strict=True):
            agrees = row * sign > 0
            mixed.add_(row * agrees, alpha=weight)
            share.add_(agrees, alpha=weight)
        return mixed.div_(share.clamp_(min=1e-30)).mul_(params.scale)

    return merged
