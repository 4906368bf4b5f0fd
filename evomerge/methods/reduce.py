"""Reductions in a fixed order: the same bits for any number of threads."""

from __future__ import annotations

import numpy as np
import torch

#: Elements summed at a time: small enough that BLAS does not split them over threads.
CHUNK = 8192


def dots(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float, float]:
    """⟨a, a⟩, ⟨b, b⟩ and ⟨a, b⟩ of two float32 tensors, products and sums in float64."""
    x, y = a.reshape(-1).numpy(), b.reshape(-1).numpy()
    aa = bb = ab = 0.0
    for start in range(0, x.size, CHUNK):
        u = x[start : start + CHUNK].astype(np.float64)
        v = y[start : start + CHUNK].astype(np.float64)
        aa += float(u @ u)
        bb += float(v @ v)
        ab += float(u @ v)
    return aa, bb, ab


def square_norm(a: torch.Tensor) -> float:
    """⟨a, a⟩ of a float32 tensor, products and sums in float64."""
    x = a.reshape(-1).numpy()
    total = 0.0
    for start in range(0, x.size, CHUNK):
        u = x[start : start + CHUNK].astype(np.float64)
        total += float(u @ u)
    return total
