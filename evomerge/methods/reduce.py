"""Reductions in a fixed order: the same bits for any number of threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

#: Elements summed at a time: small enough that BLAS does not split them over threads.
CHUNK = 8192


def gram(tensors: Sequence[torch.Tensor]) -> NDArray[np.float64]:
    """[n, n] dot products of n floating-point tensors of one shape, computed in float64."""
    flat = [t.reshape(-1).numpy() for t in tensors]
    total = np.zeros((len(flat), len(flat)))
    for start in range(0, flat[0].size, CHUNK):
        part = [x[start : start + CHUNK].astype(np.float64) for x in flat]
        for i, u in enumerate(part):
            for j in range(i, len(part)):
                total[i, j] += u @ part[j]
    return np.triu(total) + np.triu(total, 1).T


def square_norm(a: torch.Tensor) -> float:
    """⟨a, a⟩ of a floating-point tensor, computed in float64."""
    return float(gram([a])[0, 0])
