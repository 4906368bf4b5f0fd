"""Reductions in a fixed order: the same bits for any number of threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

#: Elements added up at a time: small enough that BLAS does not split them over threads.
PIECE = 1 << 13
#: Elements a numpy call works on: in shorter calls two threads wait for each other.
CHUNK = 1 << 18


def gram(tensors: Sequence[torch.Tensor]) -> NDArray[np.float64]:
    """[n, n] dot products of n floating-point tensors of one shape, computed in float64."""
    flat = [t.reshape(-1).numpy() for t in tensors]
    count = flat[0].size
    total = np.zeros((len(flat), len(flat)))
    pieces = -(-count // PIECE)
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        wide = np.empty((len(flat), min(CHUNK, pieces * PIECE)))
        for row, x in zip(wide, flat, strict=True):
            row[:size] = x[start : start + size]
            row[size:] = 0.0
        wide = wide.reshape(len(flat), -1, PIECE)
        for i in range(len(flat)):
            total[i, i:] += np.vecdot(wide[i:], wide[i]).sum(axis=1)
    return np.triu(total) + np.triu(total, 1).T


def square_norm(a: torch.Tensor) -> float:
    """⟨a, a⟩ of a floating-point tensor, computed in float64."""
    return float(gram([a])[0, 0])
