"""Weighted sums of three models, the usual number, for linear merges and task arithmetic.

Tensors are read, added up and written in one loop, at the speed of memory. Block by block takes
twice the time.
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
    narrowed,
    size_of,
    widened,
)

_ZERO = np.float32(0)
#: Magnitudes' bits from here on are Inf and NaN: of float32, of bfloat16.
_INFINITE, _INFINITE_HALF = np.int32(0x7F800000), np.uint16(0x7F80)


@compiled
def are_alike(addresses, codes):
    """Return True if there are three inputs, all stored alike in a dtype that these loops read.

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
    """Write Σ factor · τ, scaled and added to the base, to `address`.

    Return 0, or 1 if an input holds NaN or Inf, or 2 if only the result does.
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
