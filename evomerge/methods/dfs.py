"""Deep feature selection: rows weighted by how well they agree with the others.

For each output feature (row) of a tensor, over n ≥ 3 inputs xᵢ:

    d²ᵢ = mean over j ≠ i, and over the row's elements, of (xᵢ − xⱼ)²
    importance = 1 / (d²ᵢ + ε · mean d²)
    result = Σ importance·xᵢ / Σ importance

Identical rows are copied. With two inputs both distances are equal and the result is the mean, so
two are refused. A vector (norm, bias) is a column of rows of one element. The source documents'
formula gives every input the same importance, which is the plain mean whatever the inputs.

The distances come from deviations from the mean m, as Σⱼ(xᵢ − xⱼ)² = n(xᵢ − m)² + Σⱼ(xⱼ − m)²,
which needs n passes instead of n² and cancels nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import BaseModel, ConfigDict, Field

from evomerge.errors import ConfigError
from evomerge.methods import linear


class Params(BaseModel):
    """Parameters of `dfs`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epsilon: float = Field(default=0.1, gt=0)


#: Elements worked on at a time.
CHUNK = 1 << 18
#: Elements of a row added up at a time: too few for torch to split them over threads.
PIECE = 1 << 15


def importances(inputs: Sequence[torch.Tensor], epsilon: float) -> torch.Tensor:
    """[inputs, rows] float32 shares that add up to 1 over the inputs, each [rows, columns]."""
    count, columns = len(inputs), inputs[0].shape[1]
    mean = linear.merge(inputs)
    work = torch.empty_like(mean)
    squares = [_row_sums(torch.sub(x, mean, out=work).square_()) for x in inputs]
    deviation = torch.stack(squares)
    distance = (deviation * count + deviation.sum(dim=0)) / ((count - 1) * columns)
    mean_distance = distance.mean(dim=0)
    same = mean_distance == 0
    # In units of the mean distance, which the shares do not depend on: nothing overflows.
    importance = 1.0 / (distance / (mean_distance + same) + epsilon)
    return importance / importance.sum(dim=0)


def _row_sums(rows: torch.Tensor) -> torch.Tensor:
    """[rows] sums, a row longer than PIECE piece by piece."""
    total = torch.zeros(rows.shape[0], dtype=torch.float32)
    for start in range(0, rows.shape[1], PIECE):
        total += rows[:, start : start + PIECE].sum(dim=1)
    return total


def merge(inputs: Sequence[torch.Tensor], epsilon: float) -> torch.Tensor:
    """The merged tensor of float32 tensors of one shape; a new tensor."""
    if len(inputs) < 3:
        raise ConfigError(
            f"dfs of {len(inputs)} inputs is their plain mean: give three or more, or use linear"
        )
    shape = inputs[0].shape
    rows = [x.reshape(shape[0], -1) if x.dim() > 1 else x.reshape(-1, 1) for x in inputs]
    result = torch.empty_like(rows[0])
    step = max(1, CHUNK // rows[0].shape[1])
    for start in range(0, len(result), step):
        part = [x[start : start + step] for x in rows]
        shares = importances(part, epsilon)
        # x₀ + Σ share·(xᵢ − x₀) instead of Σ share·xᵢ: exact where the rows are identical.
        merged = result[start : start + step].copy_(part[0])
        work = torch.empty_like(merged)
        for row, share in zip(part[1:], shares[1:], strict=True):
            merged.addcmul_(torch.sub(row, part[0], out=work), share.unsqueeze(1))
    return result.view(shape)
