"""Karcher mean: the weighted mean on the sphere (Karcher 1977; Riemannian centre of mass).

The inputs' directions are averaged on the unit sphere by iterated tangent averages. From the
current mean p, each direction u is θ away along the tangent v = (u − cos θ · p) / sin θ; p moves
along Σ wθv. The length of the result is the weighted mean of the inputs' lengths.

Every iterate is a combination of the inputs, so the iteration runs on their dot products alone
(float64) and the tensors are read twice: once for the products, once to merge. Zero tensors are
left out. If the directions cancel (their weighted sum is zero) there is no mean, and the straight
mean is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.methods import linear
from agent_forge.weights.recipes import Parameters

#: Lengths and angles below this count as zero.
TINY = 1e-12


class Params(Parameters):
    """Parameters of `karcher`."""

    weights: tuple[float, ...] | None = None
    max_iter: int = Field(default=100, ge=1)
    #: Length of a step, radians, below which the mean has been found.
    tol: float = Field(default=1e-9, gt=0)


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the mean of float64 x [models, rows, columns], iterated on x itself, plainly."""
    lengths = x.norm(dim=(1, 2))
    weights = torch.tensor(params.weights or [1.0] * len(x), dtype=x.dtype) * (lengths > TINY)
    if not weights.sum():
        return torch.zeros_like(x[0])
    weights = weights / weights.sum()
    units = x / lengths.clamp(min=TINY).view(-1, 1, 1)
    p = torch.tensordot(weights, units, dims=1)
    if p.norm() < TINY:
        return torch.tensordot(weights, x, dims=1)
    p = p / p.norm()
    for _ in range(params.max_iter):
        cosines = torch.tensordot(units, p, dims=2).clamp(-1, 1)
        stretch = weights * cosines.acos() / cosines.acos().sin()
        stretch = torch.where(1 - cosines.abs() > TINY**2, stretch, 0.0)
        step = torch.tensordot(stretch, units - cosines.view(-1, 1, 1) * p, dims=1)
        if step.norm() < params.tol:
            break
        p = step.norm().cos() * p + step.norm().sin() / step.norm() * step
        p = p / p.norm()
    return p * (weights @ lengths)


def factors(products: NDArray[np.float64], weights: Sequence[float], params: Params) -> list[float]:
    """Return the factor of every input in the mean, from their [n, n] dot products."""
    lengths = np.sqrt(np.maximum(np.diag(products), 0.0))
    share = np.where(lengths > TINY, np.asarray(weights), 0.0)
    if not share.sum():
        return [0.0] * len(lengths)
    share = share / share.sum()
    scale = np.where(lengths > TINY, lengths, 1.0)
    cosines = products / np.outer(scale, scale)
    p = share.copy()
    length = math.sqrt(max(float(p @ cosines @ p), 0.0))
    if length < TINY:
        return list(map(float, share))
    p /= length
    for _ in range(params.max_iter):
        step = _tangent(cosines, p, share)
        size = math.sqrt(max(float(step @ cosines @ step), 0.0))
        if size < params.tol:
            break
        p = math.cos(size) * p + math.sin(size) / size * step
        p /= math.sqrt(float(p @ cosines @ p))
    return list(map(float, p / scale * float(share @ lengths)))


def _tangent(
    cosines: NDArray[np.float64], p: NDArray[np.float64], share: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return Σ share · θ / sin θ · (u − cos θ · p), as coefficients of the directions u."""
    step = np.zeros_like(p)
    for i, cosine in enumerate(np.clip(cosines @ p, -1.0, 1.0)):
        angle = math.acos(cosine)
        if share[i] == 0.0 or angle < TINY or math.pi - angle < TINY:
            continue
        stretch = share[i] * angle / math.sin(angle)
        step[i] += stretch
        step -= stretch * cosine * p
    return step


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge` to the mean, by the dot products of the whole tensors."""
    weights = linear.normalised(params.weights, work.count)
    return linear.combining(factors(work.gram(), weights, params), work.columns)
