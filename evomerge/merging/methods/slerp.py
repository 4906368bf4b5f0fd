"""Slerp: spherical linear interpolation (Shoemake 1985), per tensor.

    u = v / ‖v‖,  d = ⟨u₀, u₁⟩ clamped to [−1, 1],  θ = arccos d
    slerp(v₀, v₁; t) = sin((1 − t)θ)/sin θ · v₀ + sin(tθ)/sin θ · v₁

If |d| > 0.9995 or a norm is zero, the arc is not defined well (or not at all, for opposite vectors)
and the straight line (lerp) is taken instead. More than two inputs fold in their order with
t = 1/2, 1/3, …, so the result depends on the order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches, whole
from agent_forge.evomerge.merging.methods import linear
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters

COLINEAR = 0.9995


class Params(Parameters):
    """Parameters of `slerp`: `ts[k]` pulls towards input k + 1; 1/2, 1/3, … by default."""

    ts: tuple[float, ...] | None = None


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the fold of float64 x [models, rows, columns] by the formula above, plainly."""
    result = x[0]
    for k, v in enumerate(x[1:], start=1):
        t = params.ts[k - 1] if params.ts else 1 / (k + 1)
        lengths = result.norm() * v.norm()
        d = float((result * v).sum() / lengths) if lengths > 0 else 1.0
        if abs(d) > COLINEAR:
            result = (1 - t) * result + t * v
            continue
        theta = math.acos(d)
        arc = math.sin((1 - t) * theta) * result + math.sin(t * theta) * v
        result = arc / math.sin(theta)
    return result


def coefficients(aa: float, bb: float, ab: float, t: float) -> tuple[float, float]:
    """Return (the factor of v₀, the factor of v₁) from their dot products."""
    if aa <= 0.0 or bb <= 0.0:
        return 1.0 - t, t
    d = max(-1.0, min(1.0, ab / math.sqrt(aa) / math.sqrt(bb)))
    if abs(d) > COLINEAR:
        return 1.0 - t, t
    theta = math.acos(d)
    return math.sin((1.0 - t) * theta) / math.sin(theta), math.sin(t * theta) / math.sin(theta)


def fold(products: NDArray[np.float64], ts: Sequence[float] | None = None) -> list[float]:
    """Return the factor of every input in the fold, from their [n, n] dot products.

    A fold of slerps is a linear combination, so the tensors need no pass per step: if r = Σ cᵢ vᵢ,
    then ⟨r, r⟩ = cᵀGc and ⟨r, v⟩ = Σ cᵢ⟨vᵢ, v⟩.
    """
    count = len(products)
    if ts is None:
        ts = [1.0 / (k + 1) for k in range(1, count)]
    if len(ts) != count - 1:
        raise ConfigError(f"slerp of {count} models takes {count - 1} values of t")
    factors = np.zeros(count)
    factors[0] = 1.0
    for k, t in enumerate(ts, start=1):
        against = products @ factors
        a, b = coefficients(float(factors @ against), float(products[k, k]), float(against[k]), t)
        factors *= a
        factors[k] = b
    return [float(f) for f in factors]


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge`: the fold of the inputs in their order."""
    return linear.combining(fold(work.gram(), params.ts), work.columns)


def merge(inputs: Sequence[torch.Tensor], ts: Sequence[float] | None = None) -> torch.Tensor:
    """Return a new tensor: the fold of float32 tensors of one shape."""
    params = Params(ts=None if ts is None else tuple(ts))
    return whole(inputs, lambda work: prepare(work, params))
