"""Inner loops, compiled by numba at their first call, without the interpreter's lock.

A merge is a few dozen operations on every element. One at a time they are bound by memory and, with
two threads, by the interpreter's lock; in one loop they are bound by neither (docs/decisions/0008).
Nothing is reordered or contracted by the compiler: a loop gives the same bits on any number of threads
and on any processor. Where a sum's order matters it is added up in float64, in lanes of a fixed number.

The compiled code is kept beside this file or, where that cannot be written, in the user's cache.
`kernels.py` calls these, and has the same in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

_ZERO, _ONE = np.float32(0), np.float32(1)
#: Elements of a block of `vote`: its workspace stays in the first cache.
_BLOCK = 1024
#: Elements that `split` looks at before it takes any of them.
_LOOK = 2048
#: Numbers that a sum in float64 is added up in, side by side.
_LANES = 32
#: Below this a sum of weights counts as zero.
LEAST = np.float32(1e-8)


def compiled(function: Callable[..., Any]) -> Any:
    """The function, compiled at its first call, without the interpreter's lock."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache can be written
        return njit(**options)(function)


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
            out[i] = (total[i] / share[i] if share[i] > LEAST else total[i]) * signs[i]
        else:
            out[i] = total[i] * signs[i]


@compiled
def vote(x, low, high, weights, normalise, out):
    """ELECT and MERGE of [inputs, size]; see `kernels.vote`."""
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


@compiled
def _above(v, bound):
    count = np.int32(0)
    for i in range(v.size):
        count += np.int32(not (abs(v[i]) <= bound))
    return count


@compiled
def _at_least(v, bound):
    count = np.int32(0)
    for i in range(v.size):
        count += np.int32(not (abs(v[i]) < bound))
    return count


@compiled
def _flag(v, low, high, flags):
    for i in range(v.size):
        a = abs(v[i])
        flags[i] = np.uint8((a > low) & (a < high))


@compiled
def split(values, low, high, counts, between):
    """See `kernels.split`."""
    count = 0
    flags = np.empty(_LOOK, np.uint8)
    eight = flags.view(np.uint64)
    for start in range(0, values.size, _LOOK):
        part = values[start : start + _LOOK]
        counts[0] += _above(part, high)
        counts[1] += _at_least(part, high)
        counts[2] += _above(part, low)
        counts[3] += _at_least(part, low)
        flags[part.size :] = 0
        _flag(part, low, high, flags)
        for group in range(_LOOK // 8):
            if eight[group]:
                for i in range(group * 8, min(group * 8 + 8, part.size)):
                    between[count] = abs(part[i])  # no branch: nobody could foresee it
                    count += flags[i]
    return count


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
def gram(x, out):
    """[n, n] dot products of the rows."""
    for i in range(len(x)):
        for j in range(i, len(x)):
            out[i, j] = out[j, i] = _dot(x[i], x[j])


@compiled
def drop(v, lanes, dropped, factor, out):
    """Drop and rescale."""
    for i in range(v.size):
        out[i] = v[i] * factor if lanes[i] >= dropped else _ZERO


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
def select_rows(x, epsilon, out):
    """Deep feature selection of [inputs, rows, columns]."""
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
