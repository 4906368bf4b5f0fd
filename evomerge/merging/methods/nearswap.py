"""NearSwap: take the other model's value where it is near (Alan Keith, "NearSwap", 2024).

    w = clamp(t / |b − a|, 0, 1),   result = a + w (b − a)

a is the base, b the other model. Elements closer than t become b's, and farther elements move by t.
If a = b the result is a.
"""

from __future__ import annotations

import torch
from pydantic import Field

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters


class Params(Parameters):
    """Parameters of `nearswap`. t is in units of the weights."""

    t: float = Field(ge=0)


def reference(a: torch.Tensor, b: torch.Tensor, params: Params) -> torch.Tensor:
    """Return a + w (b − a) of float64 tensors of one shape, plainly."""
    distance = (b - a).abs()
    w = torch.where(distance > 0, params.t / distance, 1.0).clamp(0, 1)
    return a + w * (b - a)


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge` that adds the difference, clamped to ±t."""
    if work.count != 1:
        raise ConfigError(f"nearswap takes a base and one other model, not {work.count}")
    # clamp(t / |δ|, 0, 1) · δ is δ cut off at ±t.
    return lambda _, x: torch.clamp(x[1], -params.t, params.t, out=x[0])
