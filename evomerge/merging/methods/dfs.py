"""Deep feature selection: rows weighted by how well they agree with the others.

For each output feature (row) of a tensor, over n ≥ 3 inputs xᵢ:

    d²ᵢ = mean over j ≠ i, and over the row's elements, of (xᵢ − xⱼ)²
    importance = 1 / (d²ᵢ + ε · mean d²)
    result = Σ importance·xᵢ / Σ importance

Identical rows are copied. With two inputs both distances are equal and the result is the mean, so
two are refused. A vector (norm, bias) is a column of rows of one element. The source documents'
formula gives every input the same importance, which is the plain mean for any inputs.

The distances come from deviations from the mean m, as Σⱼ(xᵢ − xⱼ)² = n(xᵢ − m)² + Σⱼ(xⱼ − m)². That
needs n passes instead of n² and has no cancellation. The result is x₀ + Σ share·(xᵢ − x₀), exact if
the rows are identical.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches, whole
from agent_forge.evomerge.merging.kernels.fused_merge import StageProgram
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters


class Params(Parameters):
    """Parameters of `dfs`."""

    epsilon: float = Field(default=0.1, gt=0)


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the merge of float64 x [models, rows, columns] by the three formulas above, plainly."""
    count = len(x)
    apart = (x[:, None] - x[None]).square().mean(dim=3)  # [models, models, rows]
    distance = apart.sum(dim=1) / (count - 1)
    importance = 1 / (distance + params.epsilon * distance.mean(dim=0))
    share = importance / importance.sum(dim=0)
    alike = distance.sum(dim=0) == 0
    return torch.where(alike[:, None], x[0], (share[:, :, None] * x).sum(dim=0))


def check(count: int) -> None:
    """Raise ConfigError if `count` is below 3: dfs of one or two inputs is their plain mean."""
    if count < 3:
        raise ConfigError(
            f"dfs of {count} inputs is their plain mean: give three or more, or use linear"
        )


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge` that weights rows by importance."""
    check(work.count)
    return StageProgram(work.count, work.columns, epsilon=params.epsilon)


def merge(inputs: Sequence[torch.Tensor], epsilon: float) -> torch.Tensor:
    """Return a new tensor: float32 tensors of one shape, rows weighted by importance."""
    return whole(inputs, lambda work: prepare(work, Params(epsilon=epsilon)))
