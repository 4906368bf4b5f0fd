"""Dot products in float64."""

from __future__ import annotations

import numpy as np

from evomerge.merging.kernels.numba.compiler import compiled
from evomerge.merging.kernels.numba.vectors import BLOCK

#: Partial sums that a sum is added up in, side by side.
_LANES = 32


@compiled
def _cleared(lanes):
    for lane in range(_LANES):
        lanes[lane] = 0.0


@compiled
def _total(lanes, a, b):
    """Return the sum of the lanes, then of the products that did not fill them, in their order."""
    total = 0.0
    for lane in range(_LANES):
        total += lanes[lane]
    for i in range(a.size - a.size % _LANES, a.size):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@compiled
def _dot(a, b, lanes):
    _cleared(lanes)
    for i in range(0, a.size - a.size % _LANES, _LANES):
        for lane in range(_LANES):
            lanes[lane] += np.float64(a[i + lane]) * np.float64(b[i + lane])
    return _total(lanes, a, b)


@compiled
def _gram_of_three(a, b, c, lanes, out):
    """Add six dot products to `out`, computed side by side: each number is widened once."""
    aa, ab, ac, bb, bc, cc = lanes[0], lanes[1], lanes[2], lanes[3], lanes[4], lanes[5]
    for row in lanes:
        _cleared(row)
    for i in range(0, a.size - a.size % _LANES, _LANES):
        for lane in range(_LANES):
            p, q, r = np.float64(a[i + lane]), np.float64(b[i + lane]), np.float64(c[i + lane])
            aa[lane] += p * p
            ab[lane] += p * q
            ac[lane] += p * r
            bb[lane] += q * q
            bc[lane] += q * r
            cc[lane] += r * r
    out[0, 0] += _total(aa, a, a)
    out[0, 1] += _total(ab, a, b)
    out[0, 2] += _total(ac, a, c)
    out[1, 1] += _total(bb, b, b)
    out[1, 2] += _total(bc, b, c)
    out[2, 2] += _total(cc, c, c)


@compiled
def lanes_of_sums():
    """Return the memory that `gram_block` works in."""
    return np.empty((6, _LANES), np.float64)


@compiled
def gram_block(x, top, start, end, lanes, out):
    """Add to `out` the dot products of elements `start` to `end` of the layers from `top` on."""
    if len(out) == 3:
        a, b, c = x[top, start:end], x[top + 1, start:end], x[top + 2, start:end]
        _gram_of_three(a, b, c, lanes, out)
    for i in range(len(out)):
        for j in range(i, len(out)):
            if len(out) != 3:
                out[i, j] += _dot(x[top + i, start:end], x[top + j, start:end], lanes[0])
            out[j, i] = out[i, j]


@compiled
def gram(x, out):
    """Compute [n, n] dot products of the rows into `out`."""
    out[:] = 0.0
    lanes = lanes_of_sums()
    for start in range(0, x.shape[1], BLOCK):
        gram_block(x, 0, start, min(start + BLOCK, x.shape[1]), lanes, out)
