"""Inner loops of merges: compiled for tensors in the processor's memory, in torch for others.

What is compiled is in `loops.py`, which is imported when it is needed: half a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]

#: Below this a sum of weights counts as zero; as in `loops.py`.
_LEAST = 1e-8


def _loops() -> Any:
    from evomerge import loops

    return loops


def _on_cpu(x: torch.Tensor) -> bool:
    return x.device.type == "cpu"


# ---- sign election and disjoint merge ------------------------------------------------------


def vote(
    x: torch.Tensor,
    weights: Sequence[float],
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
    normalise: bool = True,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """ELECT and MERGE (TIES) of float32 x [inputs, …]; into `out` [...], which may be x[0].

    Of input j only elements with low[j] <= |x| <= high[j] count. s = sign(Σ wx), zero is +. The sum of
    those wx whose sign is s, divided (`normalise`) by the sum of their |w|.
    """
    count = len(x)
    bounds = [0.0] * count if low is None else low, [np.inf] * count if high is None else high
    lows, highs, factors = (np.asarray(values, np.float32) for values in (*bounds, weights))
    if not _on_cpu(x):
        return vote_torch(x, factors, lows, highs, normalise)
    if out is None:
        out = torch.empty(x.shape[1:], dtype=torch.float32)
    _loops().vote(_flat(x), lows, highs, factors, normalise, out.view(-1).numpy())
    return out


def _flat(x: torch.Tensor) -> Floats:
    return x.reshape(len(x), -1).numpy()


def vote_torch(
    x: torch.Tensor, weights: Floats, low: Floats, high: Floats, normalise: bool
) -> torch.Tensor:
    """`vote` in torch: the same bits."""
    chosen = []
    for j, row in enumerate(x):
        size = row.abs()
        kept = (size >= float(low[j])) & (size <= float(high[j]))
        chosen.append(torch.where(kept, row, 0.0).mul_(float(weights[j])))
    votes = torch.zeros_like(x[0])
    for part in chosen:
        votes.add_(part)
    signs = torch.where(votes >= 0, 1.0, -1.0)
    total, share = torch.zeros_like(votes), torch.zeros_like(votes)
    for part, weight in zip(chosen, weights, strict=True):
        agreeing = (part * signs).clamp_(min=0.0)
        total.add_(agreeing)
        share.add_(torch.where(agreeing > 0, abs(float(weight)), 0.0))
    if normalise:
        total = torch.where(share > float(np.float32(_LEAST)), total / share, total)
    return total.mul_(signs)


# ---- selection -----------------------------------------------------------------------------


def split(values: torch.Tensor, low: float, high: float) -> tuple[NDArray[np.int64], Floats]:
    """Where the |values| (float32) lie, and those strictly between `low` and `high`, in their order.

    [4] how many are above `high`, at least `high`, above `low`, at least `low`; NaN is above all.
    """
    if not _on_cpu(values):
        size = values.reshape(-1).abs()
        told = [~(size <= high), ~(size < high), ~(size <= low), ~(size < low)]
        inside = size[(size > low) & (size < high)]
        return np.array([int(mask.sum()) for mask in told]), inside.cpu().numpy()
    flat = values.reshape(-1).numpy()
    counts, between = np.zeros(4, np.int64), np.empty(flat.size + 1, np.float32)
    found = _loops().split(flat, np.float32(low), np.float32(high), counts, between)
    return counts, between[:found].copy()


# ---- dot products --------------------------------------------------------------------------


def gram(x: torch.Tensor) -> NDArray[np.float64]:
    """[n, n] dot products of float32 x [n, …], computed in float64."""
    if not _on_cpu(x):
        wide = x.reshape(len(x), -1).to(torch.float64)
        return (wide @ wide.T).cpu().numpy()
    out = np.empty((len(x), len(x)))
    _loops().gram(_flat(x), out)
    return out


# ---- drop and rescale ----------------------------------------------------------------------


def drop(
    x: torch.Tensor, lanes: NDArray[np.uint16], dropped: int, factor: float, out: torch.Tensor
) -> torch.Tensor:
    """Out = x · factor where the lane is at least `dropped`, else 0; both contiguous float32."""
    if _on_cpu(x):
        _loops().drop(x.view(-1).numpy(), lanes, dropped, np.float32(factor), out.view(-1).numpy())
        return out
    kept = torch.from_numpy(lanes >= dropped).to(x.device).view(x.shape)
    return torch.mul(x, float(np.float32(factor)), out=out).mul_(kept)


# ---- deep feature selection ----------------------------------------------------------------


def select_rows(x: torch.Tensor, epsilon: float, out: torch.Tensor | None = None) -> torch.Tensor:
    """Dfs of float32 x [inputs, rows, columns]; into `out` [rows, columns], which may be x[0]."""
    if not _on_cpu(x):
        return select_rows_torch(x, epsilon)
    if out is None:
        out = torch.empty(x.shape[1:], dtype=torch.float32)
    _loops().select_rows(x.numpy(), epsilon, out.numpy())
    return out


def select_rows_torch(x: torch.Tensor, epsilon: float) -> torch.Tensor:
    """`select_rows` in torch: sums in another order, so shares may differ in float64's last bit."""
    count, _, columns = x.shape
    mean = torch.zeros_like(x[0])
    for row in x:
        mean.add_(row)
    mean.mul_(float(np.float32(1.0 / count)))
    deviation = torch.stack([(row.double() - mean.double()).square().sum(dim=1) for row in x])
    distance = (deviation * count + deviation.sum(dim=0)) / ((count - 1) * columns)
    typical = distance.mean(dim=0)
    importance = 1.0 / (distance / torch.where(typical == 0, 1.0, typical) + epsilon)
    share = (importance / importance.sum(dim=0)).float()
    out = x[0].clone()
    for row, part in zip(x[1:], share[1:], strict=True):
        out.add_((row - x[0]).mul_(part.unsqueeze(1)))
    return out
