"""Counts and values between two magnitudes, for the k-th largest (`methods/kth_magnitude.py`)."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types

from agent_forge.evomerge.merging.kernels.numba.compiler import compiled, intrinsic
from agent_forge.evomerge.merging.kernels.numba.dtypes import size_of
from agent_forge.evomerge.merging.kernels.numba.vectors import BLOCK


@intrinsic
def _lowest(typing, word):
    """Return the number of the byte that has the lowest set bit."""

    def made(context, builder, signature, args):
        zeros = builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))
        return builder.lshr(zeros, ir.Constant(ir.IntType(64), 3))

    return types.int64(types.uint64), made


@compiled
def _compared(v, low, high, counts, between):
    """Mark the elements between the bounds with 1, others with 0; return how many are between.

    Add to `counts` how many are above `high`, at least `high`, above `low`, at least `low`.
    Magnitudes are compared by their bits, which have their order; NaN is above all.
    """
    least, most = size_of(low), size_of(high)
    above = from_high = above_low = from_low = np.int32(0)
    for i in range(v.size):
        a = size_of(v[i])
        above += np.int32(a > most)
        from_high += np.int32(a >= most)
        above_low += np.int32(a > least)
        from_low += np.int32(a >= least)
        between[i] = np.uint8((a > least) & (a < most))
    counts[0] += above
    counts[1] += from_high
    counts[2] += above_low
    counts[3] += from_low
    return above_low - from_high


@compiled
def split_block(part, low, high, counts, between, count, flags):
    """Append to `between` the magnitudes between the bounds, of up to BLOCK elements.

    Return how many are in `between` then. `flags` [BLOCK] is worked in.
    """
    if _compared(part, low, high, counts, flags) <= 0:
        return count
    for i in range(part.size, BLOCK):
        flags[i] = 0
    words = flags.view(np.uint64)
    for group in range(BLOCK // 8):
        word = words[group]
        while word:
            between[count] = abs(part[8 * group + _lowest(word)])
            count += 1
            word &= word - np.uint64(1)
    return count


@compiled
def split(values, low, high, counts, between):
    """Count and collect magnitudes: see `inner_loops.split`; return how many are in `between`."""
    count = 0
    flags = np.empty(BLOCK, np.uint8)
    for start in range(0, values.size, BLOCK):
        part = values[start : start + BLOCK]
        count = split_block(part, low, high, counts, between, count, flags)
    return count
