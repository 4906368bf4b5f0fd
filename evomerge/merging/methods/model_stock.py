"""Model stock: how far to go from the base towards the mean of the fine-tunes.

Source: Jang et al. 2024, arXiv 2403.19522, eq. 5.

    t = N cos θ / (1 + (N − 1) cos θ),   result = base + t · mean of the task vectors

cos θ is the mean cosine between pairs of task vectors of the tensor (or, with `by_row`, of each row
of a matrix). The formula has a pole at cos θ = −1/(N − 1), and leaves [0, 1] for negative cosines,
when the task vectors have nothing in common. So t is clamped to [0, 1], and is 0 for negative
cosines. A zero task vector has the cosine 0.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.kernels.fused_merge import consensus
from agent_forge.evomerge.merging.methods import linear
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters


class Params(Parameters):
    """Parameters of `model_stock`."""

    by_row: bool = False


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the mean of float64 task vectors [models, rows, columns], scaled by eq. 5, plainly."""
    count, dims = len(x), (0, 1)
    if params.by_row and x.shape[2] > 1:
        dims = (1,)
    lengths = [v.norm(dim=dims, keepdim=True) for v in x]
    total = torch.zeros_like(lengths[0])
    for i in range(count):
        for j in range(i):
            product = (x[i] * x[j]).sum(dim=dims, keepdim=True)
            scale = lengths[i] * lengths[j]
            total += torch.where(scale > 0, product / scale, 0.0)
    cosine = (total / (count * (count - 1) / 2)).clamp(0, 1)
    return count * cosine / (1 + (count - 1) * cosine) * x.mean(dim=0)


def mean_cosine(products: NDArray[np.float64]) -> float:
    """Return the mean over pairs of ⟨a, b⟩ / (‖a‖‖b‖), 0 for a norm of 0, from [n, n] dot products."""
    norms = np.sqrt(np.diag(products))
    scale = np.where(norms > 0, norms, 1.0)
    cosines = products / np.outer(scale, scale)
    upper = np.triu_indices(len(products), 1)
    return float(np.clip(cosines[upper], -1.0, 1.0).mean())


def ratio(cosine: float, count: int) -> float:
    """Return t of the formula for N = `count`: 0 if the cosine is not above 0, at most 1."""
    if cosine <= 0.0:
        return 0.0
    return min(1.0, count * cosine / (1.0 + (count - 1) * cosine))


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge` by t of the tensor, or of each row. Raises ConfigError below two inputs."""
    if work.count < 2:
        raise ConfigError("model_stock takes two or more fine-tunes of the base")
    count = work.count
    if not params.by_row or work.columns == 1:
        t = ratio(mean_cosine(work.gram()), count)
        return linear.combining([t / count] * count, work.columns)

    def by_row(_: slice, x: torch.Tensor) -> torch.Tensor:
        wide = x[1:].double()
        unit = wide / wide.norm(dim=2, keepdim=True).clamp(min=1e-300)
        # Σ over pairs of ⟨u, v⟩ = (‖Σ u‖² − Σ ‖u‖²) / 2.
        alone = unit.square().sum(dim=2).sum(dim=0)
        pairs = (unit.sum(dim=0).square().sum(dim=1) - alone) / (count * (count - 1))
        cosine = pairs.clamp(0.0, 1.0)
        t = (count * cosine / (1.0 + (count - 1) * cosine)).clamp(0.0, 1.0)
        return consensus(x, [1.0 / count] * count).mul_(t.float().unsqueeze(1))

    return by_row
