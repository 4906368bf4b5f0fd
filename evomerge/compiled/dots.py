"""Dot products in float64."""

from __future__ import annotations

import numpy as np

from evomerge.compiled.blocks import BLOCK
from evomerge.compiled.compiler import compiled

#: Numbers that a sum is added up in, side by side.
_LANES = 32


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
def gram_block(x, top, start, end, out):
    """Adds those of some elements of the layers from `top` on."""
    for i in range(len(out)):
        for j in range(i, len(out)):
            out[i, j] += _dot(x[top + i, start:end], x[top + j, start:end])
            out[j, i] = out[i, j]


@compiled
def gram(x, out):
    """[n, n] dot products of the rows."""
    out[:] = 0.0
    for start in range(0, x.shape[1], BLOCK):
        gram_block(x, 0, start, min(start + BLOCK, x.shape[1]), out)
