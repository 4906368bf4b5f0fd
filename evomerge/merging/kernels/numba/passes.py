"""Compiled passes over a stretch of several tensors, read and written where they are stored.

They merge, compute grams, and count values between two magnitudes for the k-th largest
(`methods/kth_magnitude.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from agent_forge.evomerge.merging.kernels.numba.compiler import compiled, intrinsic
from agent_forge.evomerge.merging.kernels.numba.dropout import drop_block
from agent_forge.evomerge.merging.kernels.numba.dtypes import pick, size_of, store
from agent_forge.evomerge.merging.kernels.numba.feature_selection import FOURS, select_row
from agent_forge.evomerge.merging.kernels.numba.sign_election import few_voters, vote_block
from agent_forge.evomerge.merging.kernels.numba.vectors import (
    BLOCK,
    are_alike,
    combine,
    fill,
    gram_block,
    lanes_of_sums,
    load_all,
    step_of,
    subtract,
    sum_of_three,
    workspace,
)

_ZERO, _ONE = np.float32(0), np.float32(1)


@compiled
def grams(addresses, codes, size, out):
    """Write the [n, n] dot products of the task vectors into `out`."""
    x, zero = workspace(len(addresses), BLOCK)
    strange = np.empty(len(addresses), np.uint8)
    out[:] = 0.0
    lanes = lanes_of_sums()
    for start in range(0, size, BLOCK):
        n = min(BLOCK, size - start)
        load_all(addresses, codes, start, n, zero, x, 1, len(x), strange)
        gram_block(x, 1, 0, n, lanes, out)


@compiled
def splits(addresses, codes, size, factors, layers, lows, highs, counts, between, found):
    """Write `split` of several layers: 0 is the consensus Σ factor · x, the others are the inputs."""
    x, zero = workspace(len(addresses), BLOCK)
    strange = np.empty(len(addresses), np.uint8)
    flags = np.empty(BLOCK, np.uint8)
    for start in range(0, size, BLOCK):
        n = min(BLOCK, size - start)
        load_all(addresses, codes, start, n, zero, x, 1, len(x), strange)
        if factors.size:
            combine(x, n, factors)
        for k in range(len(layers)):
            part = x[layers[k], :n]
            found[k] = split_block(part, lows[k], highs[k], counts[k], between[k], found[k], flags)


@compiled
def sampled(addresses, codes, size, factors, layers, stride, out):
    """Write magnitudes of every stride-th element of the chosen layers into `out`; see `splits`."""
    x, zero = workspace(len(addresses), BLOCK)
    for start in range(0, out.shape[1], BLOCK):
        n = min(BLOCK, out.shape[1] - start)
        pick(addresses[0], codes[0], start * stride, stride, zero[1, : n if addresses[0] else 0])
        for j in range(1, len(x)):
            pick(addresses[j], codes[j], start * stride, stride, x[j, :n])
            if addresses[0]:
                subtract(x[j, :n], zero[1, :n])
        if factors.size:
            combine(x, n, factors)
        for k in range(len(layers)):
            for i in range(n):
                out[k, start + i] = abs(x[layers[k], i])


class Programs(NamedTuple):
    """Several `fused_merge.StageProgram`s; the first axis of each array is the program."""

    #: 1 if there is a consensus, and its factors [programs, inputs].
    consensus: NDArray[np.int64]
    factors: NDArray[np.float32]
    #: Lane values that drop, the others' factor, the mask's key: [programs, 1 + inputs].
    lost: NDArray[np.int64]
    rescale: NDArray[np.float32]
    keys: NDArray[np.uint64]
    #: Number of voters; bounds and weights of each [programs, 1 + inputs].
    voters: NDArray[np.int64]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    weights: NDArray[np.float32]
    normalise: NDArray[np.bool_]
    #: ε of dfs; below zero: no dfs.
    epsilon: NDArray[np.float64]
    scale: NDArray[np.float32]
    #: Layer that holds the result before it is scaled.
    made: NDArray[np.int64]
    #: True if the program is a scaled consensus and nothing else; True if the program before it has
    #: already made its result up to dfs and scale.
    adds: NDArray[np.bool_]
    goes_on: NDArray[np.bool_]


@compiled
def _voted(x, top, n, low, high, weights, few, normalise, work):
    for start in range(0, n, BLOCK):
        end = min(start + BLOCK, n)
        out = x[0, start:end]
        vote_block(x, top, start, end, low, high, weights, few, normalise, work, out)


@compiled
def _selected(x, top, n, columns, epsilon, mean, first, sums, distance):
    for start in range(0, n, columns):
        select_row(x, top, start, start + columns, epsilon, mean, first, sums, distance)


@compiled
def _by_blocks(addresses, codes, start, rows, columns, programs, outs, out_codes, told):
    # Unpacked once: numba counts references at every access, which costs as much as a block.
    consensus, factors, lost, rescale, keys = programs[:5]
    voters, low, high, weights, normalise = programs[5:10]
    epsilon, scale, sole_inputs, _, goes_on = programs[10:]
    layers, size = len(addresses), rows * columns
    block = step_of(codes)
    step = block if epsilon.max() < 0 else max(1, block // columns) * columns
    x, zero = workspace(layers, step)
    base = zero[1]
    if not addresses[0]:  # adding −0 changes nothing; 0 would make 0 of −0
        base = np.empty(step, np.float32)
        fill(base, -_ZERO)
    strange = np.zeros(layers, np.uint8)
    votes, distance = np.empty((3 + layers, BLOCK), np.float32), np.empty(layers, np.float64)
    row, first = np.empty(columns, np.float32), np.empty(columns, np.float32)
    sums = np.empty((4, FOURS), np.float64)
    words, lanes = np.empty(step // 4 + 8, np.uint64), np.empty(step, np.uint16)
    few = [few_voters(low[p], high[p], weights[p, : voters[p]]) for p in range(len(outs))]
    for begin in range(0, size, step):
        n, place = min(step, size - begin), start + begin
        spoilt = True  # True if x does not hold all inputs
        for p in range(len(outs)):
            alone = sole_inputs[p] > 0 and epsilon[p] < 0  # only that input is read
            low_j, high_j = (sole_inputs[p], sole_inputs[p] + 1) if alone else (1, layers)
            if spoilt and not goes_on[p]:
                load_all(addresses, codes, begin, n, zero, x, low_j, high_j, strange)
            if not alone and not goes_on[p]:
                spoilt = sole_inputs[p] > 0
            for j in range(low_j, high_j):
                if strange[j]:
                    told[p] = 1
                if (lost[p, j] or rescale[p, j] != _ONE) and not goes_on[p]:
                    drop_block(x[j, :n], lost[p, j], rescale[p, j], keys[p, j], place, words, lanes)
                    spoilt = True
            if consensus[p] and not goes_on[p]:
                combine(x, n, factors[p])
                if lost[p, 0] or rescale[p, 0] != _ONE:
                    drop_block(x[0, :n], lost[p, 0], rescale[p, 0], keys[p, 0], place, words, lanes)
            if voters[p] and not goes_on[p]:
                shares = weights[p, : voters[p]]
                top, rule = 1 - consensus[p], normalise[p]
                _voted(x, top, n, low[p], high[p], shares, few[p], rule, votes)
            if epsilon[p] >= 0:
                _selected(x, sole_inputs[p], n, columns, epsilon[p], row, first, sums, distance)
            result = x[sole_inputs[p], :n]
            if not store(result, scale[p], base[:n], outs[p], out_codes[p], begin) and not told[p]:
                told[p] = 2


@compiled
def merged(addresses, codes, start, rows, columns, programs, outs, out_codes, told):
    """Write a stretch of stored tensors, merged by each program, into stored tensors.

    `told` gets 0, or 1 if an input holds NaN or Inf, or 2 if only the result does.
    """
    alike = are_alike(addresses, codes) and len(outs) == 1 and out_codes[0] == codes[1]
    if alike and programs.adds[0]:
        factors, scale = programs.factors[0], programs.scale[0]
        told[0] = sum_of_three(addresses, codes, rows * columns, factors, scale, outs[0])
    else:
        _by_blocks(addresses, codes, start, rows, columns, programs, outs, out_codes, told)


@intrinsic
def _lowest(typing, word):
    """Return the number of the byte that has the lowest set bit."""

    def made(context, builder, signature, args):
        zeros = builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))
        return builder.lshr(zeros, ir.Constant(ir.IntType(64), 3))

    return types.int64(types.uint64), made


@compiled
def _compared(v, low, high, counts, between):
    """Write 1 for elements between the bounds, else 0, into `between`; return the number of ones.

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
    """Append magnitudes in (low, high) to `between`; return how many it has then.

    `counts` grows as by `_compared`. `flags` [BLOCK] is scratch.
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
