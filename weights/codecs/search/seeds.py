"""Exact search for the best seed of a block of weights (SeedLM, arXiv 2410.10714, section 3.3).

Of all 2^K − 1 seeds, `search` returns the seed whose quantised reconstruction is nearest to the
block, the lowest of several equally near ones: the result of trying all, in a fraction of the time.

Bound. A reconstruction lies in the span of the columns of U(s), so its squared error is at least
‖w‖² − ‖Qᵀw‖² with Q an orthonormal basis of the span. Seeds are ranked by that energy ‖Qᵀw‖². The
search quantises only seeds whose bound is below the best error so far: about six of a block.

Energies. U(s) is a window of one sequence, row by row: its column j is column 0 of the window j
places later. So one product of `C` numbers per place gives d_j = u_jᵀw of every seed. With the Cholesky
factor of UᵀU = RᵀR (from U = QR), Qᵀw = R⁻ᵀd. That is 8 + 6 multiplications a seed for C = 8, P = 3,
while the projection itself takes 24. They run in float32, over tiles of places that stay in the
cache, and only the largest energy of every group of places is kept.

Margin. In float32, whose unit roundoff is u, with ‖w‖ = 1 and κ² = Σ_i (Σ_j |R⁻ᵀ_ij| ‖u_j‖)²,
‖δ(Qᵀw)‖ ≤ (C + P + 3) u κ to first order, so an energy is off by at most 2 (C + P + 3) u κ +
(P + 1) u. `MARGIN` is twice that for κ ≤ `LARGEST`. The few seeds of larger κ, whose columns are nearly
parallel, are projected by Q itself, for which κ² ≤ P C. A seed is left out only if its energy is more
than the margin below what it needs, therefore no rounding can lose the best.

Tables. In one step of a linear feedback shift register of K bits (section 3.1, appendices A.1 to A.3),
the state shifts to the right, and the exclusive or of the bits at the taps enters at the left (bit
K − 1). The taps of table 6 make every register run through all 2^K − 1 states other than 0. For K = 16
they are bits 0, 1, 3 and 12: b(n + 16) = b(n) + b(n + 1) + b(n + 3) + b(n + 12) mod 2, whose polynomial
x^16 + x^12 + x^3 + x + 1 is primitive.

Ties. A reconstruction is an integer times 2^e / (2^(K−1) − 1), so equal reconstructions of different
seeds have the same bits, and so have their errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from agent_forge.weights.codecs.search.compiler import compiled, compiled_fast

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


#: Range of the 4-bit mantissas and of the 4-bit exponent (section 3.2).
LOW, HIGH = -8, 7
#: Groups of a tile; blocks that use a tile before the next tile is loaded.
GROUPS, BATCH = 32, 16
#: How far energies in float32 may be off, as a part of ‖w‖²: twice 2 (12 + 4 + 3) 2⁻²⁴ κ.
MARGIN = 2 * (2 * 19 * LARGEST + 5) * 2.0**-24


@compiled_fast
def _energies_of_8(entries, whitening, w, dots, out):  # pyright: ignore
    """Fill `out` with ‖R⁻ᵀd‖² of a tile's places for C = 8, P = 3, and `dots` with d.

    `entries` and `whitening` begin at the tile. Offsets are written out, and arrays are not sliced, so
    that the compiler can do several places at a time.
    """
    a, b, c, d, e, f, g, h = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
    for n in range(TILE + 2):
        near = entries[n] * a + entries[n + 3] * b + entries[n + 6] * c + entries[n + 9] * d
        far = entries[n + 12] * e + entries[n + 15] * f + entries[n + 18] * g + entries[n + 21] * h
        dots[n] = near + far
    for n in range(TILE):
        p, q, r = dots[n], dots[n + 1], dots[n + 2]
        x = whitening[n] * p
        y = whitening[n + TILE] * p + whitening[n + 2 * TILE] * q
        z = whitening[n + 3 * TILE] * p + whitening[n + 4 * TILE] * q + whitening[n + 5 * TILE] * r
        out[n] = x * x + y * y + z * z


@compiled_fast
def _energies_of_12(entries, whitening, w, dots, out):  # pyright: ignore
    """Fill `out` with ‖R⁻ᵀd‖² of a tile's places for C = 12, P = 4, and `dots` with d."""
    a, b, c, d, e, f, g, h = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
    for n in range(TILE + 3):
        near = entries[n] * a + entries[n + 4] * b + entries[n + 8] * c + entries[n + 12] * d
        far = entries[n + 16] * e + entries[n + 20] * f + entries[n + 24] * g + entries[n + 28] * h
        dots[n] = near + far
    a, b, c, d = w[8], w[9], w[10], w[11]
    for n in range(TILE + 3):
        rest = entries[n + 32] * a + entries[n + 36] * b + entries[n + 40] * c + entries[n + 44] * d
        dots[n] += rest
    for n in range(TILE):
        p, q, r, s = dots[n], dots[n + 1], dots[n + 2], dots[n + 3]
        x = whitening[n] * p
        y = whitening[n + TILE] * p + whitening[n + 2 * TILE] * q
        z = whitening[n + 3 * TILE] * p + whitening[n + 4 * TILE] * q + whitening[n + 5 * TILE] * r
        first = whitening[n + 6 * TILE] * p + whitening[n + 7 * TILE] * q
        v = first + whitening[n + 8 * TILE] * r + whitening[n + 9 * TILE] * s
        out[n] = x * x + y * y + z * z + v * v


@compiled_fast
def _keep_larger(kept, others):  # pyright: ignore
    """Replace each number of `kept` by that of `others` if it is larger."""
    for n in range(kept.size):
        kept[n] = others[n] if others[n] > kept[n] else kept[n]


@compiled_fast
def _rank(entries, whitening, weights, tops):  # pyright: ignore
    """Fill `tops` [batch, groups] with the largest energy of each group of places.

    Group g of a tile has the places g, g + GROUPS, g + 2 GROUPS, … of the tile.
    """
    dots = np.empty(TILE + 4, np.float32)
    energies = np.empty(TILE, np.float32)
    for tile in range(whitening.shape[0]):
        tile_entries, white = entries[tile * TILE :], whitening[tile]
        for b in range(weights.shape[0]):
            if weights.shape[1] == 8:
                _energies_of_8(tile_entries, white, weights[b], dots, energies)
            else:
                _energies_of_12(tile_entries, white, weights[b], dots, energies)
            half = TILE // 2
            while half >= GROUPS:
                _keep_larger(energies[:half], energies[half : 2 * half])
                half //= 2
            tops[b, tile * GROUPS : (tile + 1) * GROUPS] = energies[:GROUPS]


@compiled_fast
def _hard_energies(hard_bases, weights, block, out):  # pyright: ignore
    """Fill `out` [hard] with ‖Qᵀw‖² of the hard places."""
    count = out.size
    dots = np.empty(count, np.float32)
    out[:] = 0.0
    for p in range(hard_bases.shape[0] // block):
        dots[:] = 0.0
        for c in range(block):
            row = hard_bases[p * block + c]
            weight = weights[c]
            for n in range(count):
                dots[n] += row[n] * weight
        for n in range(count):
            out[n] += dots[n] * dots[n]


@compiled
def quantise(numerators, inverses, unit, place, block, mantissas):  # pyright: ignore
    """Return (squared error, exponent) of a block quantised by a place's seed; fill `mantissas`.

    t = U⁺w; e = ⌈log2(max |t| / 7.5)⌉ in −8 … 7; q = t / 2^e rounded to the nearest, to even at
    halves, in −8 … 7; the reconstruction is U q 2^e. `block` is [C] float64; `unit` is 2^(K−1) − 1.
    """
    size, count = block.size, mantissas.size
    largest = 0.0
    for p in range(count):
        total = 0.0
        for c in range(size):
            total += inverses[place, p, c] * block[c]
        mantissas[p] = total
        largest = max(largest, abs(total))
    exponent = LOW
    if largest > 0.0:
        fraction, exponent = math.frexp(largest / 7.5)
        if fraction == 0.5:
            exponent -= 1
        exponent = min(max(exponent, LOW), HIGH)
    scale = math.ldexp(1.0, exponent)
    for p in range(count):
        mantissas[p] = min(max(np.rint(mantissas[p] / scale), LOW), HIGH)
    error = 0.0
    for c in range(size):
        whole = 0
        for p in range(count):
            whole += numerators[place + c * count + p] * np.int64(mantissas[p])
        error += (block[c] - whole / unit * scale) ** 2
    return error, exponent


@compiled
def _try(tables, block, place, mantissas, best, lowest):  # pyright: ignore
    """Quantise a block, filling `mantissas`; update `best` if better; return the lowest error."""
    numerators, seeds, inverses, unit = tables
    error, exponent = quantise(numerators, inverses, unit, place, block, mantissas)
    if error < lowest or (error == lowest and seeds[place] < best[0]):
        best[0], best[1] = seeds[place], exponent
        for p in range(mantissas.size):
            best[2 + p] = np.int64(mantissas[p])
        return error
    return lowest


@compiled_fast
def _energy(entries, whitening, weights, place, scratch):  # pyright: ignore
    """Return the energy ‖R⁻ᵀd‖² of one place, a float32; `scratch` has room for P numbers."""
    stride = scratch.size
    tile, n = place // TILE, place % TILE
    scratch[:] = 0.0
    for j in range(stride):
        dot = np.float32(0.0)
        for c in range(weights.size):
            dot += entries[place + c * stride + j] * weights[c]
        for i in range(j, stride):
            scratch[i] += whitening[tile, (i * (i + 1) // 2 + j) * TILE + n] * dot
    total = np.float32(0.0)
    for i in range(stride):
        total += scratch[i] * scratch[i]
    return total


@compiled
def _try_group(  # pyright: ignore
    tables, ranking, block, shrunk, group, mantissas, scratch, best, lowest, norm
):
    """Quantise a block at a group's places of enough energy; update `best`, return the lowest error."""
    entries, whitening = ranking
    seeds = tables[1]
    needed = np.float32(1.0 - lowest / norm - MARGIN)
    start = group // GROUPS * TILE + group % GROUPS
    for k in range(TILE // GROUPS):
        place = start + k * GROUPS
        if place >= seeds.size:
            break
        if _energy(entries, whitening, shrunk, place, scratch) >= needed:
            lowest = _try(tables, block, place, mantissas, best, lowest)
            needed = np.float32(1.0 - lowest / norm - MARGIN)
    return lowest


@compiled
def _choose(tables, ranking, block, shrunk, tops, hard, hard_energies, best):  # pyright: ignore
    """Fill `best` with the seed, the exponent and the mantissas of a block other than zero.

    The group with the most energy goes first and sets the bound for all others.
    """
    norm = np.sum(block * block)
    mantissas = np.zeros(best.size - 2)
    scratch = np.zeros(mantissas.size, np.float32)
    best[0] = 1 << 62
    first = 0
    for group in range(tops.size):
        if tops[group] > tops[first]:
            first = group
    lowest = _try_group(tables, ranking, block, shrunk, first, mantissas, scratch, best, np.inf, norm)
    needed = np.float32(1.0 - lowest / norm - MARGIN)
    for group in range(tops.size):
        if tops[group] >= needed and group != first:
            lowest = _try_group(
                tables, ranking, block, shrunk, group, mantissas, scratch, best, lowest, norm
            )
            needed = np.float32(1.0 - lowest / norm - MARGIN)
    for n in range(hard.size):
        if hard_energies[n] >= needed:
            lowest = _try(tables, block, hard[n], mantissas, best, lowest)
            needed = np.float32(1.0 - lowest / norm - MARGIN)


@compiled
def _search(tables, ranking, hard, hard_bases, blocks, found):  # pyright: ignore
    """Fill `found` [blocks, 2 + P] with seed, exponent and mantissas; zeros take seed 1."""
    size = blocks.shape[1]
    entries, whitening = ranking
    shrunk = np.empty((BATCH, size), np.float32)
    tops = np.empty((BATCH, whitening.shape[0] * GROUPS), np.float32)
    energies = np.empty(hard.size, np.float32)
    for start in range(0, blocks.shape[0], BATCH):
        taken = min(BATCH, blocks.shape[0] - start)
        for b in range(taken):
            norm = math.sqrt(np.sum(blocks[start + b] ** 2))
            for c in range(size):
                shrunk[b, c] = blocks[start + b, c] / norm if norm > 0.0 else 0.0
        _rank(entries, whitening, shrunk[:taken], tops[:taken])
        for b in range(taken):
            if np.any(blocks[start + b]):
                _hard_energies(hard_bases, shrunk[b], size, energies)
                _choose(
                    tables,
                    ranking,
                    blocks[start + b],
                    shrunk[b],
                    tops[b],
                    hard,
                    energies,
                    found[start + b],
                )
            else:
                found[start + b, :] = 0
                found[start + b, 0], found[start + b, 1] = 1, LOW


def search(table: Bases, blocks: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return (seed, exponent, P mantissas) of each block as a row, [blocks, 2 + P] int64.

    `blocks` is [blocks, C] float64, finite.
    """
    solutions = np.zeros((blocks.shape[0], 2 + table.coefficients), np.int64)
    unit = float((1 << (table.bits - 1)) - 1)
    _search(
        (table.numerators, table.seeds, table.inverses, unit),
        (table.entries, table.whitening),
        table.hard,
        table.hard_bases,
        np.ascontiguousarray(blocks),
        solutions,
    )
    return solutions
