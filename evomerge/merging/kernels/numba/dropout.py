"""Drop and rescale, and the 16-bit lanes that say what is dropped (Philox-4x64-10, as numpy's)."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types

from agent_forge.evomerge.merging.kernels.numba.compiler import compiled, intrinsic
from agent_forge.evomerge.merging.kernels.numba.vectors import fill

_ZERO = np.float32(0)
#: Philox-4x64 (Salmon et al. 2011, table 2).
_MULTIPLIERS = (np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157))
_WEYL = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B))


@intrinsic
def _product(typing, a, b):
    """Return (the upper, the lower) 64 bits of a product."""

    def made(context, builder, signature, args):
        word, wide = ir.IntType(64), ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        upper = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)
        halves = [upper, builder.trunc(product, word)]
        return context.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), made


@compiled
def lanes(low, high, start, out, words):
    """Write into `out` the 16-bit lanes of elements `start` to `start + out.size`.

    They are those of numpy's Philox-4x64-10. `words` is worked in.
    """
    first = start // 16
    count = (start + out.size + 15) // 16 - first
    for block in range(count):
        a, b, c, d = np.uint64(first + block + 1), np.uint64(0), np.uint64(0), np.uint64(0)
        k, m = low, high
        for _ in range(10):
            p, q = _product(_MULTIPLIERS[1], c), _product(_MULTIPLIERS[0], a)
            a, b, c, d = p[0] ^ b ^ k, p[1], q[0] ^ d ^ m, q[1]
            k += _WEYL[0]
            m += _WEYL[1]
        words[4 * block], words[4 * block + 1] = a, b
        words[4 * block + 2], words[4 * block + 3] = c, d
    halves = words.view(np.uint16)
    skipped = start % 16
    for i in range(out.size):
        out[i] = halves[skipped + i]


@compiled
def drop(v, lanes, dropped, factor, out):
    """Write into `out` v · factor where the lane is at least `dropped`, else 0."""
    for i in range(v.size):
        out[i] = v[i] * factor if lanes[i] >= dropped else _ZERO


@compiled
def _drop_here(v, lanes, dropped, factor):
    for i in range(v.size):
        v[i] = v[i] * factor if lanes[i] >= dropped else _ZERO


@compiled
def drop_block(v, lost, factor, key, start, words, sixteen):
    """Drop and rescale in place, from element `start` of the tensor on, by the mask of `key`."""
    if lost >= 65536:
        fill(v, _ZERO)
        return
    part = sixteen[: v.size]
    lanes(key[0], key[1], start, part, words)
    _drop_here(v, part, np.uint16(lost), factor)
