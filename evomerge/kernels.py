"""Inner loops, compiled (numba), for tensors in the processor's memory; the same in torch for others.

A merge is a few dozen operations on every element. One at a time they are bound by memory and, with
two threads, by the interpreter's lock; in one loop they are bound by neither (docs/decisions/0008).
Nothing is reordered or contracted by the compiler: a loop gives the same bits on any number of threads
and on any processor. Where a sum's order matters it is added up in float64, in lanes of a fixed number.

The compiled code is kept beside this file or, where that cannot be written, in the user's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_ZERO, _ONE = np.float32(0), np.float32(1)
#: Elements of a block of `vote`: its workspace stays in the first cache.
_BLOCK = 1024
#: Elements that `split` looks at before it takes any of them.
_LOOK = 2048
#: Numbers that a sum in float64 is added up in, side by side.
_LANES = 32
#: Below this a sum of weights counts as zero.
_LEAST = np.float32(1e-8)


def compiled(function: Callable[..., Any]) -> Any:
    """The function, compiled at its first call, without the interpreter's lock."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache can be written
        return njit(**options)(function)


def _on_cpu(x: torch.Tensor) -> bool:
    return x.device.type == "cpu"


# ---- sign election and disjoint merge ------------------------------------------------------


@compiled
def _within(v, low, high):
    a = abs(v)
    return v if (a >= low) & (a <= high) else _ZERO


@compiled
def _add(v, low, high, weight, votes):
    for i in range(v.size):
        votes[i] += _within(v[i], low, high) * weight


@compiled
def _signs(votes):
    for i in range(votes.size):
        votes[i] = _ONE if votes[i] >= _ZERO else -_ONE


@compiled
def _agree(v, low, high, weight, signs, total, share):
    for i in range(v.size):
        q = _within(v[i], low, high) * weight * signs[i]
        total[i] += q if q > _ZERO else _ZERO
        share[i] += abs(weight) if q > _ZERO else _ZERO


@compiled
def _elected(total, share, signs, normalise, out):
    for i in range(total.size):
        if normalise:
            out[i] = (total[i] / share[i] if share[i] > _LEAST else total[i]) * signs[i]
        else:
            out[i] = total[i] * signs[i]


@compiled
def _vote(x, low, high, weights, normalise, out):
    count, size = x.shape
    signs, total = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32)
    share = np.empty(_BLOCK, np.float32)
    for start in range(0, size, _BLOCK):
        end = min(start + _BLOCK, size)
        n = end - start
        signs[:] = _ZERO
        total[:] = _ZERO
        share[:] = _ZERO
        for j in range(count):
            _add(x[j, start:end], low[j], high[j], weights[j], signs[:n])
        _signs(signs[:n])
        for j in range(count):
            _agree(x[j, start:end], low[j], high[j], weights[j], signs[:n], total[:n], share[:n])
        _elected(total[:n], share[:n], signs[:n], normalise, out[start:end])


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
    _vote(_flat(x), lows, highs, factors, normalise, out.view(-1).numpy())
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
        total = torch.where(share > float(_LEAST), total / share, total)
    return total.mul_(signs)


# ---- selection -----------------------------------------------------------------------------


@compiled
def _above(v, high):
    count = np.int32(0)
    for i in range(v.size):
        count += np.int32(not (abs(v[i]) <= high))
    return count


@compiled
def _flag(v, low, high, flags):
    for i in range(v.size):
        a = abs(v[i])
        flags[i] = np.uint8((a >= low) & (a <= high))


@compiled
def _split(values, low, high, between):
    above, count = 0, 0
    flags = np.empty(_LOOK, np.uint8)
    eight = flags.view(np.uint64)
    for start in range(0, values.size, _LOOK):
        part = values[start : start + _LOOK]
        above += _above(part, high)
        flags[part.size :] = 0
        _flag(part, low, high, flags)
        for group in range(_LOOK // 8):
            if eight[group]:
                for i in range(group * 8, min(group * 8 + 8, part.size)):
                    between[count] = abs(part[i])  # no branch: nobody could foresee it
                    count += flags[i]
    return above, count


def split(values: torch.Tensor, low: float, high: float) -> tuple[int, Floats]:
    """How many |values| (float32) are above `high` (NaN is), and those in [low, high]."""
    if not _on_cpu(values):
        size = values.reshape(-1).abs()
        inside = (size >= low) & (size <= high)
        return int((~(size <= high)).sum()), size[inside].cpu().numpy()
    flat = values.reshape(-1).numpy()
    between = np.empty(flat.size + 1, np.float32)
    above, count = _split(flat, np.float32(low), np.float32(high), between)
    return above, between[:count].copy()


# ---- dot products --------------------------------------------------------------------------


@compiled
def _dot(a, b):
    lanes = np.zeros(_LANES, np.float64)
    whole = a.size - a.size % _LANES
    for i in range(0, whole, _LANES):
        for lane in range(_LANES):
            lanes[lane] += np.float64(a[i + lane]) * np.float64(b[i + lane])
    total = 0.0
    for lane in range(_LANES):
        total += lanes[lane]
    for i in range(whole, a.size):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@compiled
def _gram(x, out):
    for i in range(len(x)):
        for j in range(i, len(x)):
            out[i, j] = out[j, i] = _dot(x[i], x[j])


def gram(x: torch.Tensor) -> NDArray[np.float64]:
    """[n, n] dot products of float32 x [n, …], computed in float64."""
    if not _on_cpu(x):
        wide = x.reshape(len(x), -1).to(torch.float64)
        return (wide @ wide.T).cpu().numpy()
    out = np.empty((len(x), len(x)))
    _gram(_flat(x), out)
    return out


# ---- drop and rescale ----------------------------------------------------------------------


@compiled
def _drop(v, lanes, dropped, factor, out):
    for i in range(v.size):
        out[i] = v[i] * factor if lanes[i] >= dropped else _ZERO


def drop(
    x: torch.Tensor, lanes: NDArray[np.uint16], dropped: int, factor: float, out: torch.Tensor
) -> torch.Tensor:
    """Out = x · factor where the lane is at least `dropped`, else 0; both contiguous float32."""
    if _on_cpu(x):
        _drop(x.view(-1).numpy(), lanes, dropped, np.float32(factor), out.view(-1).numpy())
        return out
    kept = torch.from_numpy(lanes >= dropped).to(x.device).view(x.shape)
    return torch.mul(x, float(np.float32(factor)), out=out).mul_(kept)


# ---- deep feature selection ----------------------------------------------------------------


@compiled
def _add_to(total, v):
    for i in range(v.size):
        total[i] += v[i]


@compiled
def _scale(v, factor):
    for i in range(v.size):
        v[i] *= factor


@compiled
def _deviation(v, mean):
    lanes = np.zeros(_LANES, np.float64)
    whole = v.size - v.size % _LANES
    for i in range(0, whole, _LANES):
        for lane in range(_LANES):
            d = np.float64(v[i + lane]) - np.float64(mean[i + lane])
            lanes[lane] += d * d
    total = 0.0
    for lane in range(_LANES):
        total += lanes[lane]
    for i in range(whole, v.size):
        d = np.float64(v[i]) - np.float64(mean[i])
        total += d * d
    return total


@compiled
def _pull(out, v, first, share):
    for i in range(v.size):
        out[i] += (v[i] - first[i]) * share


@compiled
def _select_rows(x, epsilon, out):
    count, rows, columns = x.shape
    mean, first = np.empty(columns, np.float32), np.empty(columns, np.float32)
    distance = np.empty(count, np.float64)
    for row in range(rows):
        mean[:] = _ZERO
        for j in range(count):
            _add_to(mean, x[j, row])
        _scale(mean, np.float32(1.0 / count))
        deviations = 0.0
        for j in range(count):
            distance[j] = _deviation(x[j, row], mean)
            deviations += distance[j]
        total = 0.0
        for j in range(count):
            distance[j] = (distance[j] * count + deviations) / ((count - 1) * columns)
            total += distance[j]
        first[:] = x[0, row]
        out[row] = first
        if total == 0.0:
            continue
        typical = total / count
        importances = 0.0
        for j in range(count):
            distance[j] = 1.0 / (distance[j] / typical + epsilon)
            importances += distance[j]
        for j in range(1, count):
            _pull(out[row], x[j, row], first, np.float32(distance[j] / importances))


def select_rows(x: torch.Tensor, epsilon: float, out: torch.Tensor | None = None) -> torch.Tensor:
    """Dfs of float32 x [inputs, rows, columns]; into `out` [rows, columns], which may be x[0]."""
    if not _on_cpu(x):
        return select_rows_torch(x, epsilon)
    if out is None:
        out = torch.empty(x.shape[1:], dtype=torch.float32)
    _select_rows(x.numpy(), epsilon, out.numpy())
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
