"""Slerp: spherical linear interpolation (Shoemake 1985), per tensor.

    u = v / ‖v‖,  d = ⟨u₀, u₁⟩ clamped to [−1, 1],  θ = arccos d
    slerp(v₀, v₁; t) = sin((1 − t)θ)/sin θ · v₀ + sin(tθ)/sin θ · v₁

Where |d| > 0.9995 or a norm is zero the arc is not defined well (or not at all, for opposite
vectors) and the straight line (lerp) is taken instead. More than two inputs fold in their order
with t = 1/2, 1/3, …, so the result depends on the order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from pydantic import BaseModel, ConfigDict

from evomerge.errors import ConfigError
from evomerge.methods.reduce import dots

COLINEAR = 0.9995


class Params(BaseModel):
    """Parameters of `slerp`: `ts[k]` pulls towards input k + 1; 1/2, 1/3, … by default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ts: tuple[float, ...] | None = None


def pair(v0: torch.Tensor, v1: torch.Tensor, t: float) -> torch.Tensor:
    """Slerp of two float32 tensors of one shape; a new tensor."""
    a, b = coefficients(*dots(v0, v1), t)
    return (v0 * a).add_(v1, alpha=b)


def coefficients(aa: float, bb: float, ab: float, t: float) -> tuple[float, float]:
    """The factors of v₀ and v₁ from their dot products."""
    if aa == 0.0 or bb == 0.0:
        return 1.0 - t, t
    d = max(-1.0, min(1.0, ab / math.sqrt(aa) / math.sqrt(bb)))
    if abs(d) > COLINEAR:
        return 1.0 - t, t
    theta = math.acos(d)
    return math.sin((1.0 - t) * theta) / math.sin(theta), math.sin(t * theta) / math.sin(theta)


def merge(inputs: Sequence[torch.Tensor], ts: Sequence[float] | None = None) -> torch.Tensor:
    """Fold the inputs by `pair`; a new tensor."""
    if ts is None:
        ts = [1.0 / (k + 1) for k in range(1, len(inputs))]
    if len(ts) != len(inputs) - 1:
        raise ConfigError(f"slerp of {len(inputs)} models takes {len(inputs) - 1} values of t")
    result = inputs[0].clone()
    for tensor, t in zip(inputs[1:], ts, strict=True):
        result = pair(result, tensor, t)
    return result
