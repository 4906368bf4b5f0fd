"""Task vectors of a block of elements, and sums of them."""

from __future__ import annotations

import numpy as np

from evomerge.compiled.compiler import compiled
from evomerge.compiled.stored import load

#: Elements of a block: its workspace stays in the first caches.
BLOCK = 1024


@compiled
def workspace(layers, size):
    """[layers, size and a little], and one more: rows a multiple of 4096 bytes apart are slow."""
    x = np.empty((layers + 1, size + 48), np.float32)
    return x[:layers], x[layers]


@compiled
def fill(v, value):
    """Every element the value. (Assigning to a slice compiles a second longer.)"""
    for i in range(v.size):
        v[i] = value


@compiled
def copy_to(out, v):
    """Out = v."""
    for i in range(v.size):
        out[i] = v[i]


@compiled
def subtract(v, z):
    """V − z, in place."""
    for i in range(v.size):
        v[i] -= z[i]


@compiled
def load_all(addresses, codes, first, n, zero, x, start, end):
    """`n` elements of the base into `zero`; into x[1:] task vectors or, without a base, the inputs."""
    if addresses[0]:
        load(addresses[0], codes[0], first, zero[:n])
    for j in range(start, end):
        load(addresses[j], codes[j], first, x[j, :n])
        if addresses[0]:
            subtract(x[j, :n], zero[:n])


@compiled
def add_to(total, v):
    """Total + v, in place."""
    for i in range(v.size):
        total[i] += v[i]


@compiled
def scale_by(v, factor):
    """V · factor, in place."""
    for i in range(v.size):
        v[i] *= factor


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
    """x[0] = Σ factor · x[1 + i], in order."""
    _times(x[1, :n], factors[0], x[0, :n])
    for j in range(1, factors.size):
        _add_times(x[1 + j, :n], factors[j], x[0, :n])
