"""Dot products in float64."""

from __future__ import annotations

import numpy as np

from agent_forge.evomerge.merging.kernels.numba.compiler import compiled
from agent_forge.evomerge.merging.kernels.numba.vectors import BLOCK

#: Partial sums that a sum is added up in, side by side.
_LANES = 32


@compiled
def _dot(a, b, lanes):
    """Return the sum of the lanes, then of the products that did not fill them, in their order."""
    for lane in range(_LANES):
        lanes[lane] = 0.0
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
def lanes_of_sums():
    """Return the memory that `gram_block` works in."""
    return np.empty(_LANES, np.float64)


@compiled
def gram_block(x, top, start, end, lanes, out):
    """Add to `out` the dot products of elements `start` to `end` of the layers from `top` on."""
    for i in range(len(out)):
        for j in range(i, len(out)):
            out[i, j] += _dot(x[top + i, start:end], x[top + j, start:end], lanes)
            out[j, i] = out[i, j]


@compiled
def gram(x, out):
    """Compute [n, n] dot products of the rows into `out`."""
    out[:] = 0.0
    lanes = lanes_of_sums()
    for start in range(0, x.shape[1], BLOCK):
        gram_block(x, 0, start, min(start + BLOCK, x.shape[1]), lanes, out)
