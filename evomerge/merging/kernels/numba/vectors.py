"""Compiled vector operations on blocks of elements: task vectors, weighted sums, dot products.

Dot products are in float64. Weighted sums of three models, the usual number, read, add and write in
one loop at the speed of memory; block by block takes twice the time.
"""

from __future__ import annotations

import numpy as np
from numba.np.numpy_support import carray

from agent_forge.evomerge.merging.kernels.numba.compiler import compiled
from agent_forge.evomerge.merging.kernels.numba.dtypes import (
    BFLOAT16,
    FLOAT32,
    floats_at,
    halves_at,
    load,
    narrowed,
    size_of,
    widened,
)

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
    """Return (float32 rows [layers, size + 48], two such rows of zeros).

    The 48 are there because rows a multiple of 4096 bytes apart are slow.
    """
    x = np.empty((layers + 2, size + 48), np.float32)
    for row in x[layers:]:
        fill(row, _ZERO)
    return x[:layers], x[layers:]


@compiled
def step_of(codes):
    """Return the number of elements of a block that is merged: 2 KB of each tensor.

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
    """Write Σ factor · x[1 + i], added in order, into x[0]."""
    if factors.size == 3:
        f, g, h = factors[0], factors[1], factors[2]
        _sum_of_three(x[1, :n], x[2, :n], x[3, :n], f, g, h, x[0, :n])
        return
    _times(x[1, :n], factors[0], x[0, :n])
    for j in range(1, factors.size):
        _add_times(x[1 + j, :n], factors[j], x[0, :n])


#: Partial sums that a sum is added up in, side by side.
_LANES = 32


@compiled
def _dot(a, b, lanes):
    """Return ⟨a, b⟩: the sum of the lanes, then of the products that did not fill them, in order."""
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
    """Write the [n, n] dot products of the rows into `out`."""
    out[:] = 0.0
    lanes = lanes_of_sums()
    for start in range(0, x.shape[1], BLOCK):
        gram_block(x, 0, start, min(start + BLOCK, x.shape[1]), lanes, out)


#: Magnitudes' bits from here on are Inf and NaN: of float32, of bfloat16.
_INFINITE, _INFINITE_HALF = np.int32(0x7F800000), np.uint16(0x7F80)


@compiled
def are_alike(addresses, codes):
    """Return True if three inputs, and any base, are all float32 or all bfloat16.

    A base, if there is one, must be stored alike, too.
    """
    kind = codes[1]
    if len(codes) != 4 or kind not in (FLOAT32, BFLOAT16):
        return False
    return codes[2] == kind and codes[3] == kind and (codes[0] == kind or not addresses[0])


@compiled
def _of_floats(base, a, b, c, factors, scale, based, out):
    f, g, h = factors[0], factors[1], factors[2]
    read = written = np.int32(0)
    for i in range(out.size):
        zero = base[i] if based else _ZERO
        x, y, z = a[i] - zero, b[i] - zero, c[i] - zero
        read = max(read, size_of(x), size_of(y), size_of(z))
        total = (x * f + y * g + z * h) * scale + (zero if based else -_ZERO)
        out[i] = total
        written = max(written, size_of(total))
    return 1 if read >= _INFINITE else 2 if written >= _INFINITE else 0


@compiled
def _of_halves(base, a, b, c, factors, scale, based, out):
    f, g, h = factors[0], factors[1], factors[2]
    read, written = np.int32(0), np.uint16(0)
    for i in range(out.size):
        zero = widened(base[i]) if based else _ZERO
        x, y, z = widened(a[i]) - zero, widened(b[i]) - zero, widened(c[i]) - zero
        read = max(read, size_of(x), size_of(y), size_of(z))
        total = narrowed((x * f + y * g + z * h) * scale + (zero if based else -_ZERO))
        out[i] = total
        written = max(written, total & np.uint16(0x7FFF))
    return 1 if read >= _INFINITE else 2 if written >= _INFINITE_HALF else 0


@compiled
def sum_of_three(addresses, codes, size, factors, scale, address):
    """Write Σ factor · τ, scaled and added to the base, to `address`; return 0 if all is finite.

    Return 1 if an input holds NaN or Inf, 2 if only the result does.
    """
    based = addresses[0] != 0
    first = addresses[0] if based else addresses[1]
    if codes[1] == FLOAT32:
        return _of_floats(
            carray(floats_at(first), size),
            carray(floats_at(addresses[1]), size),
            carray(floats_at(addresses[2]), size),
            carray(floats_at(addresses[3]), size),
            factors,
            scale,
            based,
            carray(floats_at(address), size),
        )
    return _of_halves(
        carray(halves_at(first), size),
        carray(halves_at(addresses[1]), size),
        carray(halves_at(addresses[2]), size),
        carray(halves_at(addresses[3]), size),
        factors,
        scale,
        based,
        carray(halves_at(address), size),
    )
