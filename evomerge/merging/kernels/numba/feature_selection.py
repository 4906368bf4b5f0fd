"""Deep feature selection of rows; see `methods/dfs.py`."""

from __future__ import annotations

import numpy as np

from agent_forge.evomerge.merging.kernels.numba.compiler import compiled
from agent_forge.evomerge.merging.kernels.numba.vectors import add_to, copy_to, fill, scale_by

_ZERO, _QUARTER = np.float32(0), np.float32(0.25)
#: Partial sums that a sum is added up in, side by side; and those of each of four sums.
_LANES, FOURS = 32, 16


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
def _deviations_of_four(a, b, c, d, mean, lanes, distance):
    """Write Σ (v − mean)² of four vectors into `distance`, all four in one loop."""
    la, lb, lc, ld = lanes[0], lanes[1], lanes[2], lanes[3]
    for k in range(FOURS):
        la[k] = lb[k] = lc[k] = ld[k] = 0.0
    whole = a.size - a.size % FOURS
    for i in range(0, whole, FOURS):
        for k in range(FOURS):
            m = np.float64(mean[i + k])
            p, q = np.float64(a[i + k]) - m, np.float64(b[i + k]) - m
            r, s = np.float64(c[i + k]) - m, np.float64(d[i + k]) - m
            la[k] += p * p
            lb[k] += q * q
            lc[k] += r * r
            ld[k] += s * s
    for j in range(4):
        distance[j] = 0.0
        for k in range(FOURS):
            distance[j] += lanes[j, k]
    for i in range(whole, a.size):
        m = np.float64(mean[i])
        distance[0] += (np.float64(a[i]) - m) ** 2
        distance[1] += (np.float64(b[i]) - m) ** 2
        distance[2] += (np.float64(c[i]) - m) ** 2
        distance[3] += (np.float64(d[i]) - m) ** 2


@compiled
def _mean_of_four(a, b, c, d, mean):
    for i in range(mean.size):
        mean[i] = (a[i] + b[i] + c[i] + d[i]) * _QUARTER


@compiled
def _pull_three(out, first, b, c, d, f, g, h):
    for i in range(out.size):
        v = first[i]
        out[i] = v + (b[i] - v) * f + (c[i] - v) * g + (d[i] - v) * h


@compiled
def _mean_and_deviations(x, top, start, end, mean, lanes, distance):
    count = len(x) - top
    if count == 4:
        a, b = x[top, start:end], x[top + 1, start:end]
        c, d = x[top + 2, start:end], x[top + 3, start:end]
        _mean_of_four(a, b, c, d, mean)
        _deviations_of_four(a, b, c, d, mean, lanes, distance)
        return
    fill(mean, _ZERO)
    for j in range(count):
        add_to(mean, x[top + j, start:end])
    scale_by(mean, np.float32(1.0 / count))
    for j in range(count):
        distance[j] = _deviation(x[top + j, start:end], mean)


@compiled
def select_row(x, top, start, end, epsilon, mean, first, lanes, distance):
    """Write dfs of one row of the layers from `top` on into the first of them.

    `x` is [layers, rows · columns]; the row has the elements `start` to `end`.
    """
    count, columns, out = len(x) - top, end - start, x[top, start:end]
    _mean_and_deviations(x, top, start, end, mean, lanes, distance)
    deviations = total = 0.0
    for j in range(count):
        deviations += distance[j]
    for j in range(count):
        distance[j] = (distance[j] * count + deviations) / ((count - 1) * columns)
        total += distance[j]
    if total == 0.0:
        return
    copy_to(first, out)
    typical = total / count
    importances = 0.0
    for j in range(count):
        distance[j] = 1.0 / (distance[j] / typical + epsilon)
        importances += distance[j]
    if count == 4:
        b, c, d = x[top + 1, start:end], x[top + 2, start:end], x[top + 3, start:end]
        f, g, h = distance[1] / importances, distance[2] / importances, distance[3] / importances
        _pull_three(out, first, b, c, d, np.float32(f), np.float32(g), np.float32(h))
        return
    for j in range(1, count):
        _pull(out, x[top + j, start:end], first, np.float32(distance[j] / importances))


@compiled
def select_rows(x, columns, epsilon):
    """Write dfs of [inputs, rows · columns] into the first input."""
    mean, first = np.empty(columns, np.float32), np.empty(columns, np.float32)
    lanes, distance = np.empty((4, FOURS), np.float64), np.empty(len(x), np.float64)
    for start in range(0, x.shape[1], columns):
        select_row(x, 0, start, start + columns, epsilon, mean, first, lanes, distance)
