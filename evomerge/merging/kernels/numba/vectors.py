"""Task vectors of a block of elements, and sums of them."""

from __future__ import annotations

import numpy as np

from agent_forge.evomerge.merging.kernels.numba.compiler import compiled
from agent_forge.evomerge.merging.kernels.numba.dtypes import FLOAT32, load

#: Elements of a block: its workspace stays in the first caches.
BLOCK = 1024
_ZERO = np.float32(0)


@compiled
def fill(v, value):
    """Set every element to the value. (Assigning to a slice compiles a second longer.)"""
    for i in range(v.size):
        v[i] = value


@compiled
def workspace(layers, size):
    """Return float32 rows [layers, size + 48], and two such rows of zeros.

    The 48 are there because rows a multiple of 4096 bytes apart are slow.
    """
    x = np.empty((layers + 2, size + 48), np.float32)
    for row in x[layers:]:
        fill(row, _ZERO)
    return x[:layers], x[layers:]


@compiled
def step_of(codes):
    """Return the elements of a block that is merged: 2 KB of each tensor.

    That leaves room in the cache for what is read next.
    """
    for code in codes:
        if code == FLOAT32:
            return BLOCK // 2
    return BLOCK


@compiled
def copy_to(out, v):
    """Copy `v` to `out`."""
    for i in range(v.size):
        out[i] = v[i]


@compiled
def subtract(v, z):
    """Subtract `z` from `v`, in place."""
    for i in range(v.size):
        v[i] -= z[i]


@compiled
def load_all(addresses, codes, first, n, zero, x, start, end, strange):
    """Load `n` elements of the base into zero[1], and of layers `start` to `end` into x.

    The layers become task vectors or, without a base, stay as they are. strange[j] is 1 if those of
    layer j are not finite, else 0. zero[0] must be 0, and without a base zero[1], too.
    """
    if addresses[0]:
        load(addresses[0], codes[0], first, zero[0, :n], zero[1, :n])
    for j in range(start, end):
        strange[j] = not load(addresses[j], codes[j], first, zero[1, :n], x[j, :n])


@compiled
def add_to(total, v):
    """Add `v` to `total`, in place."""
    for i in range(v.size):
        total[i] += v[i]


@compiled
def scale_by(v, factor):
    """Multiply `v` by `factor`, in place."""
    for i in range(v.size):
        v[i] *= factor


@compiled
def _sum_of_three(a, b, c, f, g, h, out):
    for i in range(out.size):
        out[i] = a[i] * f + b[i] * g + c[i] * h


@compiled
def _times(v, factor, out):
    for i in range(v.size):
        out[i] = v[i] * factor


@compiled
def _add_times(v, factor, out):
    for i in range(v.size):
        out[i] += v[i] * factor


@compiled
def combine(x, n, factors):
    """Compute x[0] = Σ factor · x[1 + i], in order."""
    if factors.size == 3:
        f, g, h = factors[0], factors[1], factors[2]
        _sum_of_three(x[1, :n], x[2, :n], x[3, :n], f, g, h, x[0, :n])
        return
    _times(x[1, :n], factors[0], x[0, :n])
    for j in range(1, factors.size):
        _add_times(x[1 + j, :n], factors[j], x[0, :n])
