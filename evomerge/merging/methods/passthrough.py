"""Passthrough: one input as it is, or scaled; layer stacking is made of it."""

from __future__ import annotations

import torch

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.kernels.fused_merge import StageProgram
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters


class Params(Parameters):
    """Parameters of `passthrough`."""

    scale: float = 1.0


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the one model of float64 x [1, rows, columns], scaled."""
    return params.scale * x[0]


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge`: the input times its scale."""
    if work.count != 1:
        raise ConfigError(f"passthrough takes one model, not {work.count}")
    return StageProgram(1, work.columns, scale=params.scale)
