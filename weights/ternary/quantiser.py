"""Quantisers of BitNet b1.58: weights to {−s, 0, s}, activations to int8 (arXiv 2402.17764, section 2).

    γ  = mean |W|                                  of a tensor, or of a group of a row's columns
    W̃ = clip(round(W / (γ + ε)), −1, 1) · γ
    x̃ = clip(round(x · k), −128, 127) / k,  k = 127 / max |x| of a token

Rounding is to the even neighbour. A scale is [1, 1] for a tensor, or [rows, columns / group]: group g
of row r covers the columns g · group … (g + 1) · group − 1 of that row.
"""

from __future__ import annotations

import torch

from agent_forge.runs.errors import ConfigError, SourceError

EPSILON = 1e-5
#: Smallest divisor: a scale is divided by, and a matrix of zeros has the scale 0.
TINY = torch.finfo(torch.float32).tiny


def check_group(name: str, columns: int, group: int) -> None:
    """Raise ConfigError if groups of columns do not divide a matrix's rows; 0 is the whole tensor."""
    if group and columns % group:
        raise ConfigError(
            f"groups of {group} columns do not divide the {columns} of {name}: give a group that does, "
            "or 0 for one scale for each tensor."
        )


def mean_scale(weight: torch.Tensor, group: int = 0) -> torch.Tensor:
    """Return γ = mean |W| of a [rows, columns] matrix, [1, 1] or [rows, columns / group]."""
    if not group:
        return weight.abs().mean().reshape(1, 1)
    return weight.abs().unflatten(1, (-1, group)).mean(-1)


def largest(weight: torch.Tensor, group: int = 0) -> torch.Tensor:
    """Return max |W|, [1, 1] or [rows, columns / group]: the scale of a matrix that is ternary."""
    if not group:
        return weight.abs().max().reshape(1, 1)
    return weight.abs().unflatten(1, (-1, group)).amax(-1)


def spread(scale: torch.Tensor, columns: int) -> torch.Tensor:
    """Return a scale as [1, 1] or [rows, columns], to multiply a matrix element by element."""
    if scale.numel() == 1:
        return scale
    return scale.repeat_interleave(columns // scale.shape[1], 1)


def trits(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return clip(round(W / (scale + ε)), −1, 1) in the dtype and shape of `weight`."""
    return (weight / (spread(scale, weight.shape[1]) + EPSILON)).round().clamp(-1, 1)


def quantise(weight: torch.Tensor, group: int = 0) -> torch.Tensor:
    """Return the quantised matrix W̃, with values −γ, 0 and γ, in the dtype and shape of `weight`."""
    scale = mean_scale(weight, group)
    return trits(weight, scale) * spread(scale, weight.shape[1])


def int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (x · k rounded to −128 … 127, float32, k [..., 1]) of [..., features] activations."""
    x = x.float()
    factor = 127 / x.abs().amax(-1, keepdim=True).clamp(min=EPSILON)
    return (x * factor).round().clamp(-128, 127), factor


def straight_through(x: torch.Tensor, quantised: torch.Tensor, share: float) -> torch.Tensor:
    """Return x + share · (quantised − x), whose gradient by `x` is 1 (Bengio et al., arXiv 1308.3432).

    At share 1 the value is `quantised` to the last bit, which x + (quantised − x) would not be.
    """
    value = quantised if share == 1.0 else torch.lerp(x.detach(), quantised, share)
    return (x - x.detach()) + value.detach()


def parts(name: str, weight: torch.Tensor, group: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (trits int8 [rows, columns], scale) of a matrix whose values are {−s, 0, s} already.

    The scale has the s of each group, 0 for a group of zeros. Raises SourceError for other values.
    """
    weight = weight.float()
    check_group(name, weight.shape[1], group)
    scale, signs = largest(weight, group), weight.sign()
    if not torch.equal(signs * spread(scale, weight.shape[1]), weight):
        raise SourceError(
            f"{name} is not ternary: a matrix must hold −s, 0 and s only, with one s for "
            f"{f'each group of {group} columns' if group else 'the tensor'}. Train with `forge bitnet` "
            "first, and give its role model."
        )
    return signs.to(torch.int8), scale
