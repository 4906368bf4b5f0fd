"""Inner loops of merges: compiled for tensors in the processor's memory, in torch for others.

The compiled loops are in `numba/`, which is imported when it is needed: the import takes half a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]

#: A sum of weights below this counts as zero; the same as in `numba/sign_election.py`.
_LEAST = 1e-8


def floats(values: Sequence[float] | Sequence[Sequence[float]]) -> Floats:
    """Return the values as a float32 array; a value outside of the range becomes infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32)


def _compiled(name: str) -> ModuleType:
    """Return a module of compiled loops, which is imported at the first call."""
    return import_module(f"agent_forge.evomerge.merging.kernels.numba.{name}")


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
    """Return ELECT and MERGE (TIES) of float32 x [inputs, …], in `out` [...], which may be x[0].

    Only elements of input j with low[j] <= |x| <= high[j] count. The elected sign is s = sign(Σ
    wx), where zero is +. The result is the sum of those wx whose sign is s. With `normalise` it is
    divided by the sum of their |w|.
    """
    count = len(x)
    lows = floats([0.0] * count if low is None else low)
    highs, factors = floats([np.inf] * count if high is None else high), floats(weights)
    if not _on_cpu(x):
        tensor = vote_torch(x, factors, lows, highs, normalise)
        return tensor if out is None else out.copy_(tensor)
    if out is None:
        out = torch.empty(x.shape[1:], dtype=torch.float32)
    _compiled("sign_election").vote(_flat(x), lows, highs, factors, normalise, out.view(-1).numpy())
    return out


def _flat(x: torch.Tensor) -> Floats:
    return x.reshape(len(x), -1).numpy()


def vote_torch(
    x: torch.Tensor, weights: Floats, low: Floats, high: Floats, normalise: bool
) -> torch.Tensor:
    """Return the merged tensor of `vote`, the same to the bit, computed in torch."""
    chosen = []
    for j, row in enumerate(x):
        size = row.abs()
        mask = (size >= float(low[j])) & (size <= float(high[j]))
        chosen.append(torch.where(mask, row, 0.0).mul_(float(weights[j])))
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
    """Return ([4] counts of |values| around two bounds, the magnitudes strictly between them).

    `values` are float32; the magnitudes keep their order. The counts are how many are above `high`,
    at least `high`, above `low`, at least `low`; NaN is above all.
    """
    if not _on_cpu(values):
        size = values.reshape(-1).abs()
        masks = [~(size <= high), ~(size < high), ~(size <= low), ~(size < low)]
        inside = size[(size > low) & (size < high)]
        return np.array([int(mask.sum()) for mask in masks]), inside.cpu().numpy()
    flat = values.reshape(-1).numpy()
    counts, between = np.zeros(4, np.int64), np.empty(flat.size + 1, np.float32)
    count = _compiled("passes").split(flat, np.float32(low), np.float32(high), counts, between)
    return counts, between[:count].copy()


# ---- dot products --------------------------------------------------------------------------


def gram(x: torch.Tensor) -> NDArray[np.float64]:
    """Return [n, n] dot products of float32 x [n, …], computed in float64."""
    if not _on_cpu(x):
        wide = x.reshape(len(x), -1).to(torch.float64)
        return (wide @ wide.T).cpu().numpy()
    out = np.empty((len(x), len(x)))
    _compiled("vectors").gram(_flat(x), out)
    return out


# ---- drop and rescale ----------------------------------------------------------------------


def drop(
    x: torch.Tensor, lanes: NDArray[np.uint16], dropped: int, factor: float, out: torch.Tensor
) -> torch.Tensor:
    """Return `out`, x · factor if the lane is at least `dropped`, else 0; both contiguous float32."""
    if _on_cpu(x):
        _compiled("dropout").drop(
            x.view(-1).numpy(), lanes, dropped, np.float32(factor), out.view(-1).numpy()
        )
        return out
    mask = torch.from_numpy(lanes >= dropped).to(x.device).view(x.shape)
    return torch.mul(x, float(np.float32(factor)), out=out).mul_(mask)


# ---- deep feature selection ----------------------------------------------------------------


def select_rows(x: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return a new tensor [rows, columns]: dfs of float32 x [inputs, rows, columns]."""
    if not _on_cpu(x):
        return select_rows_torch(x, epsilon)
    work = x.reshape(len(x), -1).clone()
    _compiled("feature_selection").select_rows(work.numpy(), x.shape[2], epsilon)
    return work[0].view(x.shape[1:])


def select_rows_torch(x: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return `select_rows` by torch; another order of sums may change shares in float64's last bit."""
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


# ---- tensors as they are stored ------------------------------------------------------------

_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class Stored:
    """Stretch of the base (or None) and the inputs of one tensor, as they lie in memory.

    Tensors of other dtypes (float64, integers) are copied to float32, and tensors that are not in
    one piece are copied, too.
    """

    def __init__(self, parts: Sequence[torch.Tensor | None]) -> None:
        self._parts = [None if part is None else _plain(part) for part in parts]
        #: True if a tensor had to be copied.
        self.copies = any(a is not b for a, b in zip(parts, self._parts, strict=True))
        kinds = {(p.shape, p.device.type) for p in self._parts if p is not None}
        # An address has no length to check, and an address on another device means nothing here.
        if len(kinds) > 1 or any(device != "cpu" for _, device in kinds):
            raise ValueError(f"tensors that are merged have one shape, in memory: {kinds}")
        self.addresses = np.array(
            [p.data_ptr() if p is not None else 0 for p in self._parts], np.uint64
        )
        self.codes = np.array([_CODES[p.dtype] if p is not None else 0 for p in self._parts])
        self.size = next(p.numel() for p in reversed(self._parts) if p is not None)


def _plain(part: torch.Tensor) -> torch.Tensor:
    part = part.contiguous()
    return part if part.dtype in _CODES else part.to(torch.float32)


def stores(dtype: torch.dtype) -> bool:
    """Return True if a compiled loop can write this dtype."""
    return dtype in _CODES


def merged(
    stored: Stored, start: int, arguments: Sequence[object], outs: Sequence[torch.Tensor]
) -> list[int]:
    """Write a stretch, merged by each program, into `outs`; return a code for each program.

    `arguments` are `fused_merge.stacked`. The stretch begins at element `start`; `outs` are [rows,
    columns]. Codes: 0, 1 if an input holds NaN or Inf, 2 if only the result does. Raise ValueError if
    a size does not fit.
    """
    if any(out.numel() != stored.size for out in outs):
        raise ValueError(f"{stored.size} elements do not go into {[*map(len, outs)]} rows")
    codes = np.zeros(len(outs), np.int64)
    passes = _compiled("passes")
    passes.merged(
        stored.addresses,
        stored.codes,
        start,
        *outs[0].shape,
        passes.Programs(*arguments),
        np.array([out.data_ptr() for out in outs], np.uint64),
        np.array([_CODES[out.dtype] for out in outs]),
        codes,
    )
    return codes.tolist()


def grams(stored: Stored) -> NDArray[np.float64]:
    """Return the [inputs, inputs] dot products of task vectors, computed in float64."""
    count = len(stored.addresses) - 1
    out = np.empty((count, count))
    _compiled("passes").grams(stored.addresses, stored.codes, stored.size, out)
    return out


def splits(
    stored: Stored, factors: Floats, layers: Sequence[int], bounds: Sequence[tuple[float, float]]
) -> list[tuple[NDArray[np.int64], Floats]]:
    """Return a list of `split` (counts, magnitudes) of each of `layers`, by its own pair of `bounds`.

    Layer 0 is the consensus; layers from 1 are the inputs.
    """
    lows, highs = (np.array(ends, np.float32) for ends in zip(*bounds, strict=True))
    counts, sizes = np.zeros((len(layers), 4), np.int64), np.zeros(len(layers), np.int64)
    between = np.empty((len(layers), stored.size + 1), np.float32)
    _compiled("passes").splits(
        stored.addresses,
        stored.codes,
        stored.size,
        factors,
        np.array(layers),
        lows,
        highs,
        counts,
        between,
        sizes,
    )
    return [(c, row[:n].copy()) for c, row, n in zip(counts, between, sizes, strict=True)]


def sampled(stored: Stored, factors: Floats, layers: Sequence[int], stride: int) -> NDArray[np.float32]:
    """Return the float32 magnitudes of every stride-th element, [layers, elements].

    Layer 0 is the consensus; layers from 1 are the inputs.
    """
    out = np.empty((len(layers), -(-stored.size // stride)), np.float32)
    _compiled("passes").sampled(
        stored.addresses, stored.codes, stored.size, factors, np.array(layers), stride, out
    )
    return out
