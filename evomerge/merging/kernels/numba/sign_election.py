"""Sign election and disjoint merge (TIES); see `inner_loops.vote`."""

from __future__ import annotations

import numpy as np

from agent_forge.evomerge.merging.kernels.numba.compiler import compiled
from agent_forge.evomerge.merging.kernels.numba.vectors import BLOCK, copy_to, fill

_ZERO, _ONE = np.float32(0), np.float32(1)
#: A sum of weights below this counts as zero.
LEAST = np.float32(1e-8)


@compiled
def _within(v, low, high):
    a = abs(v)
    return v if (a >= low) & (a <= high) else _ZERO


@compiled
def _add(v, low, high, weight, votes, part):
    for i in range(v.size):
        part[i] = _within(v[i], low, high) * weight
        votes[i] += part[i]


@compiled
def _signs(votes):
    for i in range(votes.size):
        votes[i] = _ONE if votes[i] >= _ZERO else -_ONE


@compiled
def _agree(part, weight, signs, total, share):
    for i in range(part.size):
        q = part[i] * signs[i]
        total[i] += q if q > _ZERO else _ZERO
        share[i] += weight if q > _ZERO else _ZERO


@compiled
def _elected(total, share, signs, normalise, out):
    if not normalise:
        for i in range(total.size):
            out[i] = total[i] * signs[i]
        return
    for i in range(total.size):
        out[i] = (total[i] / share[i] if share[i] > LEAST else total[i]) * signs[i]


@compiled
def _vote_of_four(a, b, c, d, low, weights, normalise, out):
    """Write `vote` of four voters without upper bounds into `out`, in registers.

    `out` must not be one of the voters.
    """
    low0, low1, low2, low3 = low[0], low[1], low[2], low[3]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    size0, size1, size2, size3 = abs(w0), abs(w1), abs(w2), abs(w3)
    least = LEAST if normalise else np.float32(np.inf)
    for i in range(out.size):
        p = a[i] * w0 if abs(a[i]) >= low0 else _ZERO
        q = b[i] * w1 if abs(b[i]) >= low1 else _ZERO
        r = c[i] * w2 if abs(c[i]) >= low2 else _ZERO
        t = d[i] * w3 if abs(d[i]) >= low3 else _ZERO
        sign = _ONE if p + q + r + t >= _ZERO else -_ONE
        p, q, r, t = p * sign, q * sign, r * sign, t * sign
        share = size0 if p > _ZERO else _ZERO
        share += size1 if q > _ZERO else _ZERO
        share += size2 if r > _ZERO else _ZERO
        share += size3 if t > _ZERO else _ZERO
        total = p if p > _ZERO else _ZERO
        total += q if q > _ZERO else _ZERO
        total += r if r > _ZERO else _ZERO
        total += t if t > _ZERO else _ZERO
        by = share if share > least else _ONE
        out[i] = total / by * sign


@compiled
def few_voters(low, high, weights):
    """Return (lower bounds, weights) of four voters, filled up by some that never vote; or empty ones.

    Return empty arrays if a voter has an upper bound or there are more than four.
    """
    for j in range(weights.size):
        if high[j] != np.inf:
            return low[:0], weights[:0]
    if weights.size > 4:
        return low[:0], weights[:0]
    low4, weights4 = np.empty(4, np.float32), np.empty(4, np.float32)
    for j in range(4):
        votes = j < weights.size
        low4[j] = low[j] if votes else np.float32(np.nan)
        weights4[j] = weights[j] if votes else _ZERO
    return low4, weights4


@compiled
def vote_block(x, top, start, end, low, high, weights, few, normalise, work, out):
    """Write the vote of layers from `top` on into `out` [≤ BLOCK]; `work` is [3 + voters, BLOCK]."""
    n = end - start
    if few[0].size:
        last = top + weights.size - 1
        a, b = x[top, start:end], x[min(top + 1, last), start:end]
        c, d = x[min(top + 2, last), start:end], x[min(top + 3, last), start:end]
        _vote_of_four(a, b, c, d, few[0], few[1], normalise, work[0, :n])
        copy_to(out, work[0, :n])
        return
    signs, total, share = work[0, :n], work[1, :n], work[2, :n]
    fill(signs, _ZERO)
    fill(total, _ZERO)
    fill(share, _ZERO)
    for j in range(weights.size):
        _add(x[top + j, start:end], low[j], high[j], weights[j], signs, work[3 + j, :n])
    _signs(signs)
    for j in range(weights.size):
        _agree(work[3 + j, :n], abs(weights[j]), signs, total, share)
    _elected(total, share, signs, normalise, out)


@compiled
def vote(x, low, high, weights, normalise, out):
    """Write ELECT and MERGE of x [inputs, size] into `out` [size]; see `inner_loops.vote`."""
    work = np.empty((3 + len(x), BLOCK), np.float32)
    few = few_voters(low, high, weights)
    for start in range(0, x.shape[1], BLOCK):
        end = min(start + BLOCK, x.shape[1])
        vote_block(x, 0, start, end, low, high, weights, few, normalise, work, out[start:end])
