"""Operation `ternary-pack`: a model with ternary linear layers, without any training or data.

    absmean       s = γ = mean |W|, t = clip(round(W / (γ + ε)), −1, 1), as in the objective `ternary`
    least-squares the t and s with the least Σ (W − s t)²
    sigma         s = `sigmas` standard deviations of the tensor, t = clip(round(W / s), −1, 1)

Absmean ruins a model that was not trained with it, because mean |W| is far below the best scale of such
weights. The two other methods are the fair alternatives without training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field

from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceError
from agent_forge.weights.recipes import Frozen
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.ternary import linears, quantiser

ROLE = "of"


class Packing(Frozen):
    """Method and parameters of the scales."""

    method: Literal["absmean", "least-squares", "sigma"] = "absmean"
    #: Columns of a row that share a scale; 0: one scale for each tensor.
    group: int = Field(default=0, ge=0)
    #: Scale of the method sigma, in standard deviations of a tensor or of a group.
    sigmas: float = Field(default=1.8, gt=0)


class TernaryPack:
    """Rounding of every linear layer's matrix to {−s, 0, s}; all other tensors stay."""

    Params = Packing

    def apply(self, inputs: Mapping[str, Tensors], params: Packing, seed: int) -> Tensors:
        """Return the model `of` with the matrices of its linear layers ternary, as float32.

        Raises ConfigError for other roles or a group that does not fit, NotFiniteError for NaN or Inf,
        SourceError for a config that describes no such model.
        """
        if sorted(inputs) != [ROLE]:
            raise ConfigError(f"ternary-pack reads the input of, not {sorted(inputs)}")
        model = inputs[ROLE]
        weights = dict(model.weights)
        for name in matrices(model):
            weight = weights[name].float()
            quantiser.check_group(name, weight.shape[1], params.group)
            if not weight.isfinite().all():
                raise NotFiniteError(f"{name} holds NaN or Inf: it cannot be ternary.")
            trits, scale = rounded(weight, params)
            weights[name] = assembled(trits, scale)
        return Tensors(model.config, weights)


def matrices(model: Tensors) -> list[str]:
    """Return the names of the matrices to make ternary. Raises SourceError if the model lacks one."""
    names = linears.of_config(model.config)
    if lacking := sorted(set(names) - set(model.weights)):
        raise SourceError(f"the model lacks the tensor {lacking[0]}, which its config describes")
    return names


def assembled(trits: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the matrix t · s, float32 [rows, columns], without negative zeros."""
    return trits.to(torch.int8) * quantiser.spread(scale.float(), trits.shape[1])


def rounded(weight: torch.Tensor, params: Packing) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (trits [rows, columns], scales [1, 1] or [rows, groups]) of a float32 matrix, float32."""
    if params.method == "least-squares":
        return least_squares(weight, params.group)
    if params.method == "absmean":
        scale = quantiser.mean_scale(weight, params.group)
        return quantiser.trits(weight, scale), scale
    scale = params.sigmas * deviation(weight, params.group)
    return nearest(weight, scale), scale


def deviation(weight: torch.Tensor, group: int = 0) -> torch.Tensor:
    """Return the population's standard deviation, float32 [1, 1], or [rows, groups] if grouped."""
    if not group:
        return weight.double().std(correction=0).reshape(1, 1).float()
    return weight.double().unflatten(1, (-1, group)).std(-1, correction=0).float()


def nearest(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the trits with the least |w − s t|, in the dtype of `weight`, [rows, columns]."""
    divisor = quantiser.spread(scale.clamp(min=quantiser.TINY), weight.shape[1])
    return (weight / divisor).round().clamp(-1, 1)


def least_squares(weight: torch.Tensor, group: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (trits [rows, columns], scales [1, 1] or [rows, groups]) with the least Σ (W − s t)².

    If the n largest |w| get trits other than 0, the best s is their mean, and the error falls by
    (Σ |w|)² / n. The best n makes that largest; sums over the sorted |w| give it for all n, in float64.
    """
    rows = weight.unflatten(1, (-1, group)) if group else weight.reshape(1, 1, -1)
    sizes, order = torch.sort(rows.abs().double(), dim=-1, descending=True, stable=True)
    counts = torch.arange(1, sizes.shape[-1] + 1, dtype=torch.float64)
    sums = sizes.cumsum(-1)
    best = (sums.square() / counts).argmax(-1, keepdim=True)
    scale = (sums / counts).gather(-1, best).squeeze(-1).float()
    mask = torch.zeros_like(rows).scatter(-1, order, (counts <= best + 1).to(rows.dtype))
    return (mask * rows.sign()).reshape(weight.shape), scale
