"""SeedLM: blocks of weights as seeds of a pseudo-random generator (arXiv 2410.10714 v2).

A block w of C weights, contiguous in a row-major matrix, becomes a seed s of 16 bits and P
coefficients of 4 bits with a common exponent of 4 bits: w ≈ U(s) q 2^e. U(s), [C, P] row by row, has
the C · P states of the register (`search/seed_tables.py`) that follow the seed, as
(state − 2^15) / (2^15 − 1) in [−1, 1] (section 3.2). The encoder takes the seed with the nearest
quantised block, the lowest of equal ones (`search/seeds.py`). A block takes 16 + 4 + 4 P bits: 4 bits a
weight if C = 8, P = 3, and 3 bits if C = 12, P = 4 (table 1).

What differs from the paper: the exponent is ⌈log2(max |t| / 7.5)⌉, because the printed ⌊log2 max |t|⌋
uses 5 of 16 mantissas (relative error 0.191 where the paper's results need 0.123; replication
github.com/qiuyu-ren/seedlm-repro). The matrix is divided by the power of two nearest to its root mean
square first, so that the exponents −8 … 7 fit any scale; that division is exact. Zeros fill up the last
block, so a matrix may have any shape. A seed is the state that the register is loaded with (figure 4),
not a place in its cycle (algorithm 2).

The codec uses neither `gram` nor `seed`: it is data-free and has no random choice. Blocks that are
more than about 2^9 smaller than the root mean square become zeros, and their search tries every seed.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from agent_forge.runs.errors import SourceError
from agent_forge.weights.codecs import Coded, matrices
from agent_forge.weights.codecs.packing import bits
from agent_forge.weights.codecs.search import seeds as seed_search

#: Bits a weight → (C weights of a block, P coefficients).
GEOMETRY = {4: (8, 3), 3: (12, 4)}
#: Bits of a seed, of an exponent, of a mantissa.
SEED, EXPONENT, MANTISSA = 16, 4, 4
#: Blocks that are decoded at a time.
_PART = 1 << 16


class Params(BaseModel):
    """Settings of SeedLM."""

    model_config = ConfigDict(extra="forbid")

    #: Bits a weight.
    bits: Literal[3, 4] = 4


class SeedLM:
    """The codec `seedlm@1`."""

    Params = Params

    def encode(
        self, matrix: torch.Tensor, gram: torch.Tensor | None, params: Params, seed: int
    ) -> Coded:
        """Return the coded matrix. Raises ConfigError or NotFiniteError by `matrices.check`."""
        matrices.check(matrix)
        size, coefficients = GEOMETRY[params.bits]
        values, exponent = matrices.scaled(matrix)
        table = seed_search.bases(size, coefficients, SEED)
        solutions = seed_search.search(table, _blocks(values, size))
        return Coded(
            shape=(matrix.shape[0], matrix.shape[1]),
            header={"bits": params.bits, "exponent": exponent},
            parts={
                "seeds": bits.pack(torch.from_numpy(solutions[:, 0]), SEED),
                "exponents": bits.pack(torch.from_numpy(solutions[:, 1] - seed_search.LOW), EXPONENT),
                "mantissas": bits.pack(torch.from_numpy(solutions[:, 2:] - seed_search.LOW), MANTISSA),
            },
        )

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return the decoded matrix, [rows, columns] float32. Raises SourceError for other bytes."""
        width = matrices.whole(coded, "bits", 3, 4)
        exponent = matrices.whole(coded, "exponent", -200, 200)
        size, coefficients = GEOMETRY[width]
        count = math.prod(coded.shape)
        blocks = -(-count // size)
        seeds = _values(coded, "seeds", SEED, blocks)
        exponents = _values(coded, "exponents", EXPONENT, blocks) + seed_search.LOW
        mantissas = _values(coded, "mantissas", MANTISSA, blocks * coefficients) + seed_search.LOW
        if not seeds.all():
            raise SourceError(f"block {int(np.argmin(seeds))} has seed 0, which no register has.")
        values = np.empty((blocks, size))
        mantissas = mantissas.reshape(blocks, coefficients)
        for start in range(0, blocks, _PART):
            chunk = slice(start, start + _PART)
            values[chunk] = _rebuilt(seeds[chunk], exponents[chunk], mantissas[chunk], size)
        return matrices.unscaled(values.reshape(-1)[:count].reshape(coded.shape), exponent)


def _blocks(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return a matrix, row by row, as blocks [blocks, size] float64; zeros fill the last block."""
    padded = np.zeros(-(-values.size // size) * size)
    padded[: values.size] = values.reshape(-1)
    return padded.reshape(-1, size)


def _values(coded: Coded, name: str, width: int, count: int) -> NDArray[np.int64]:
    """Return the integers of a packed part, [count] int64. Raises SourceError."""
    stored = matrices.part(coded, name, torch.uint8, (bits.packed_bytes(count, width),))
    return bits.unpack(stored, width, count).numpy()


def _rebuilt(
    seeds: NDArray[np.int64], exponents: NDArray[np.int64], mantissas: NDArray[np.int64], size: int
) -> NDArray[np.float64]:
    """Return the blocks U(s) q 2^e, [blocks, size] float64; only the division by 2^15 − 1 rounds."""
    count = mantissas.shape[1]
    order = seed_search.cycle(SEED)
    places = seed_search.places(SEED)[seeds][:, None] + np.arange(size * count)
    states = order[places % order.size].reshape(-1, size, count) - (1 << (SEED - 1))
    whole = np.einsum("bcp,bp->bc", states, mantissas)
    return np.ldexp(whole / ((1 << (SEED - 1)) - 1), exponents[:, None])
