"""Sketch of a task vector: small and deterministic, to estimate distances from.

Count sketch with signs (Charikar et al. 2002): element e of a tensor falls into bucket e mod SIZE
with a sign, and buckets add up over all tensors. A sign is the product of a sign of the element's
row (blocks of BLOCK elements) and of its column. Signs are pairwise independent, so that ‖sketch(x)
− sketch(y)‖² has expectation ‖x − y‖². Its relative error is about √(2 / SIZE), 9 %.

A sketch is float32[SIZE], written as base64 of its little-endian bytes. Distances (the pure part,
no torch) are in `evomerge.search.diversity`.
"""

from __future__ import annotations

import base64
from functools import cache

import numpy as np
import torch

from agent_forge.evomerge.merging.builder import Weights
from agent_forge.weights import randomness

SIZE = 256
BLOCK = SIZE * 256


@cache
def _column_signs(name: str) -> torch.Tensor:
    return _signs(BLOCK, name, "columns")


def _signs(count: int, name: str, what: str) -> torch.Tensor:
    """Return [count] float32 of −1 and 1, the same for every model."""
    bits = randomness.lanes(count, "sketch", name, what) & 1
    return torch.from_numpy(bits.astype(np.float32)).mul_(2).sub_(1)


def sketch(weights: Weights, base: Weights) -> str:
    """Return the sketch of weights − base, as base64."""
    total = np.zeros(SIZE, np.float64)
    with np.errstate(all="ignore"):  # weights may hold NaN or Inf: then the sketch does too
        for name, origin in base.items():
            if origin.is_floating_point():
                delta = weights[name].to(torch.float32) - origin.to(torch.float32)
                total += _tensor_sketch(name, delta.view(-1))
        return base64.b64encode(total.astype("<f4").tobytes()).decode()


def _tensor_sketch(name: str, flat: torch.Tensor) -> np.ndarray:
    """Return the [SIZE] float64 sketch of one tensor's task vector, added up in its blocks' order."""
    rows = -(-flat.numel() // BLOCK)
    signs = _signs(rows, name, "rows")
    columns = torch.zeros(min(BLOCK, -(-flat.numel() // SIZE) * SIZE), dtype=torch.float32)
    for row in range(rows):
        part = flat[row * BLOCK : (row + 1) * BLOCK]
        columns[: len(part)].add_(part, alpha=float(signs[row]))
    columns.mul_(_column_signs(name)[: len(columns)])
    return columns.view(-1, SIZE).numpy().astype(np.float64).sum(axis=0)
