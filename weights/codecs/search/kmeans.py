"""Weighted k-means over short vectors: a start by k-means++, then Lloyd's rounds.

It minimises Σ_i h_i ‖x_i − c(i)‖². The start draws each further centre with probability proportional to
h_i times the squared distance to the nearest centre so far (Arthur and Vassilvitskii 2007), from keys.
A round assigns every vector to its nearest centre (the lowest index of equals) and moves every centre
to the weighted mean of its vectors. A centre without vectors moves to the vector whose weighted error
is the largest. Sums run in one order, so the result does not depend on threads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agent_forge.weights import randomness
from agent_forge.weights.codecs.search.compiler import compiled

#: How many centres' distances are compared at a time.
_BLOCK = 64


@compiled
def _assign(vectors, centres, nearest, errors):  # pyright: ignore
    """Fill `nearest` and the squared `errors`, [n] each, of [n, v] float32 vectors; centres are [v, k].

    It compares distances by their bits, which have the same order and compare faster as whole numbers.
    """
    width, count = centres.shape
    distances = np.empty(count, np.float32)
    order = distances.view(np.int32)
    for i in range(vectors.shape[0]):
        first, row = vectors[i, 0], centres[0]
        for c in range(count):
            distances[c] = (first - row[c]) * (first - row[c])
        for j in range(1, width):
            value, row = vectors[i, j], centres[j]
            for c in range(count):
                distances[c] += (value - row[c]) * (value - row[c])
        lowest, at = np.int32(2**31 - 1), 0
        for start in range(0, count, _BLOCK):
            least = np.int32(2**31 - 1)
            for c in range(start, min(start + _BLOCK, count)):
                least = min(least, order[c])
            if least < lowest:
                lowest, at = least, start
        while order[at] != lowest:
            at += 1
        nearest[i] = at
        errors[i] = distances[at]


@compiled
def _start(vectors, weights, draws, centres):  # pyright: ignore
    """Fill `centres` [k, v] by k-means++ with draws in (0, 1); return how many are distinct."""
    size, width = vectors.shape
    apart = np.full(size, np.inf)
    chosen = 0
    for k in range(centres.shape[0]):
        total = 0.0
        for i in range(size):
            total += weights[i] if k == 0 else weights[i] * apart[i]
        if not total > 0.0:
            return k
        target, mass = draws[k] * total, 0.0
        for i in range(size):
            share = weights[i] if k == 0 else weights[i] * apart[i]
            if share > 0.0:
                chosen = i
            mass += share
            if mass >= target and share > 0.0:
                break
        for j in range(width):
            centres[k, j] = vectors[chosen, j]
        for i in range(size):
            distance = 0.0
            for j in range(width):
                distance += (vectors[i, j] - vectors[chosen, j]) ** 2
            apart[i] = min(apart[i], distance)
    return centres.shape[0]


@compiled
def _move(vectors, weights, nearest, errors, centres):  # pyright: ignore
    """Move `centres` [k, v] in place to weighted means of their vectors; unused ones to the worst."""
    count, width = centres.shape
    sums, totals = np.zeros((count, width)), np.zeros(count)
    for i in range(vectors.shape[0]):
        totals[nearest[i]] += weights[i]
        for j in range(width):
            sums[nearest[i], j] += weights[i] * vectors[i, j]
    for k in range(count):
        if totals[k] > 0.0:
            for j in range(width):
                centres[k, j] = sums[k, j] / totals[k]
    weighted = weights * errors
    for k in range(count):
        if totals[k] == 0.0:
            worst = np.argmax(weighted)
            if weighted[worst] > 0.0:
                centres[k] = vectors[worst]
                weighted[worst] = 0.0


def assign(
    vectors: NDArray[np.float32], centres: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return (indices of the nearest centres, the lowest of equals, squared distances), [n] each."""
    nearest, errors = np.empty(len(vectors), np.int64), np.empty(len(vectors))
    _assign(vectors, np.ascontiguousarray(centres.T), nearest, errors)
    return nearest, errors


def cluster(
    vectors: NDArray[np.float32], weights: NDArray[np.float64], count: int, rounds: int, *key: str | int
) -> NDArray[np.float64]:
    """Return the centres of [n, v] vectors with weights ≥ 0, [k, v] float64; 1 ≤ k ≤ `count`.

    k is below `count` if fewer vectors are distinct. Lloyd's rounds end after `rounds` of them, or when
    no vector changes its centre. `key` is that of the start's random numbers.
    """
    if not weights.any():
        weights = np.ones_like(weights)
    centres = np.zeros((count, vectors.shape[1]))
    distinct = _start(vectors, weights, randomness.uniform(count, *key), centres)
    centres = np.ascontiguousarray(centres[:distinct])
    before = None
    for _ in range(rounds):
        nearest, errors = assign(vectors, centres.astype(np.float32))
        if before is not None and np.array_equal(nearest, before):
            break
        _move(vectors, weights, nearest, errors, centres)
        before = nearest
    return centres
