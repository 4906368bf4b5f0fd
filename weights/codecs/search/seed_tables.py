"""Tables of all seeds of a shift register (SeedLM): matrices U(s), orthonormal bases, pseudoinverses.

Linear feedback shift registers: SeedLM, arXiv 2410.10714, section 3.1, appendices A.1 to A.3.

In one step of a register of K bits, the state shifts to the right, and the exclusive or of the bits at
the taps enters at the left (bit K − 1). The taps of table 6 (appendix A.1) make every register run
through all 2^K − 1 states other than 0. For K = 16 they are bits 0, 1, 3 and 12: the recurrence
b(n + 16) = b(n) + b(n + 1) + b(n + 3) + b(n + 12) mod 2, whose polynomial x^16 + x^12 + x^3 + x + 1
is primitive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from agent_forge.weights.codecs.search.compiler import compiled

#: Places that are searched together; tables of places are filled up to a multiple of `TILE`.
TILE = 1024
#: The largest κ of seeds that are ranked by R⁻ᵀ (`seeds.py`).
LARGEST = 32.0


@dataclass(frozen=True)
class Bases:
    """Tables of all seeds of one geometry; "place" is the index in the cycle of U's first entry."""

    #: C, values of a block; P, coefficients; K, bits of a seed.
    block: int
    coefficients: int
    bits: int
    #: [places + …] float32 entries in [−1, 1] and int64 numerators, around the end of the cycle.
    entries: NDArray[np.float32]
    numerators: NDArray[np.int64]
    #: [places] int64 the seed whose matrix begins at a place.
    seeds: NDArray[np.int64]
    #: [tiles, P (P + 1) / 2 · TILE] float32 R⁻ᵀ by rows, each for all places of a tile; zeros for
    #: `hard` places.
    whitening: NDArray[np.float32]
    #: [places, P, C] float64 pseudoinverses.
    inverses: NDArray[np.float64]
    #: [hard] int64 the places of large κ, and [P · C, hard] float32 their orthonormal bases.
    hard: NDArray[np.int64]
    hard_bases: NDArray[np.float32]


@cache
def bases(block: int, coefficients: int, bits: int) -> Bases:
    """Return the Bases of C = `block`, P = `coefficients`, K = `bits`; (C, P) is (8, 3) or (12, 4)."""
    order = cycle(bits)
    padded = -(-order.size // TILE) * TILE
    around = padded + block * coefficients + coefficients
    numerators = np.resize(order, around) - (1 << (bits - 1))
    exact = numerators / ((1 << (bits - 1)) - 1)
    factors, orthonormal, inverses, spread = _decompose(exact, order.size, block, coefficients)
    hard = np.flatnonzero(~(spread <= LARGEST))
    factors[hard] = 0.0
    whitening = np.zeros((padded, factors.shape[1]), np.float32)
    whitening[: order.size] = factors
    whitening = whitening.reshape(padded // TILE, TILE, -1).transpose(0, 2, 1)
    return Bases(
        block,
        coefficients,
        bits,
        exact.astype(np.float32),
        numerators,
        np.roll(order, 1),
        np.ascontiguousarray(whitening).reshape(padded // TILE, -1),
        inverses,
        hard,
        np.ascontiguousarray(
            orthonormal[hard].reshape(hard.size, block * coefficients).T, dtype=np.float32
        ),
    )


@compiled
def _orthonormalise(q, r):  # pyright: ignore
    """Replace the rows of `q` by an orthonormal basis, and fill `r` so that rᵀ · (new q) = old q.

    The method is Gram-Schmidt, twice, which is as accurate as a singular value decomposition. A row in
    the span of earlier rows becomes zeros, and its r_jj becomes 0.
    """
    count, size = q.shape
    r[:] = 0.0
    for j in range(count):
        length = math.sqrt(np.sum(q[j] * q[j]))
        for _ in range(2):
            for i in range(j):
                dot = np.sum(q[i] * q[j])
                for c in range(size):
                    q[j, c] -= dot * q[i, c]
                r[i, j] += dot
        rest = math.sqrt(np.sum(q[j] * q[j]))
        if rest > 1e-12 * length:
            r[j, j] = rest
            q[j] /= rest
        else:
            q[j] = 0.0


@compiled
def _inverse_transposed(r, lower):  # pyright: ignore
    """Fill `lower` with R⁻ᵀ; where the diagonal of R is zero, with a row of zeros."""
    lower[:] = 0.0
    for j in range(r.shape[0]):
        for i in range(j + 1):
            total = 1.0 if i == j else 0.0
            for k in range(i, j):
                total -= r[k, j] * lower[k, i]
            lower[j, i] = total / r[j, j] if r[j, j] > 0.0 else 0.0


@compiled
def _decompose(exact, places, block, coefficients):  # pyright: ignore
    """Return (R⁻ᵀ by rows, Qᵀ, pseudoinverse, κ) of U = QR at every place, [places, …] float64."""
    factors = np.zeros((places, coefficients * (coefficients + 1) // 2))
    q = np.zeros((places, coefficients, block))
    inverses = np.zeros((places, coefficients, block))
    spread = np.zeros(places)
    r = np.zeros((coefficients, coefficients))
    lower = np.zeros((coefficients, coefficients))
    lengths = np.zeros(coefficients)
    for place in range(places):
        for j in range(coefficients):
            for c in range(block):
                q[place, j, c] = exact[place + c * coefficients + j]
            lengths[j] = math.sqrt(np.sum(q[place, j] * q[place, j]))
        _orthonormalise(q[place], r)
        _inverse_transposed(r, lower)
        at = 0
        for i in range(coefficients):
            row = 0.0
            for j in range(i + 1):
                factors[place, at] = lower[i, j]
                at += 1
                row += abs(lower[i, j]) * lengths[j]
                for c in range(block):
                    inverses[place, j, c] += lower[i, j] * q[place, i, c]
            spread[place] += row * row
        spread[place] = math.sqrt(spread[place])
    return factors, q, inverses, spread


#: Bits of a register → its taps, by table 6 of the paper; 8 bits are for tests.
TAPS: dict[int, tuple[int, ...]] = {3: (0, 1), 8: (0, 2, 3, 4), 16: (0, 1, 3, 12)}


def states(bits: int, seed: int, count: int) -> list[int]:
    """Return a list of the `count` states of the register after the state `seed` (algorithm 1)."""
    sequence, state = [], seed
    for _ in range(count):
        entering = 0
        for tap in TAPS[bits]:
            entering ^= state >> tap
        state = (state >> 1) | ((entering & 1) << (bits - 1))
        sequence.append(state)
    return sequence


@cache
def cycle(bits: int) -> NDArray[np.int64]:
    """Return all states in order, [2^bits − 1] int64, beginning with the successor of state 1."""
    order = np.array(states(bits, 1, (1 << bits) - 1), dtype=np.int64)
    order.flags.writeable = False
    return order


@cache
def places(bits: int) -> NDArray[np.int64]:
    """Return each seed's place in `cycle`, [2^bits] int64: that of the next state; −1 for seed 0."""
    order = cycle(bits)
    positions = np.full(1 << bits, -1, dtype=np.int64)
    positions[np.roll(order, 1)] = np.arange(order.size)
    positions.flags.writeable = False
    return positions
