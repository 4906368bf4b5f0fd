"""Nearest matrix of a rank, by the largest singular values (Eckart and Young 1936).

They are found from the smaller of D Dᵀ and Dᵀ D in float64, [side, side]: a layer of 14,336 × 4,096
takes the memory of its smaller side, and no whole decomposition. Singular values below some 1e-8 of the
largest are noise.
"""

from __future__ import annotations

import torch

from weights.adapters.pairs import Pair


def truncated(matrix: torch.Tensor, rank: int) -> tuple[Pair, float, float]:
    """Return the pair nearest to a float64 matrix, and squared singular values: kept, and all.

    Both of the pair's matrices have the singular values' roots as norms.
    """
    wide = matrix.shape[0] <= matrix.shape[1]
    values, vectors = torch.linalg.eigh(matrix @ matrix.T if wide else matrix.T @ matrix)
    values, vectors = values.flip(0)[:rank].clamp(min=0), vectors.flip(1)[:, :rank]
    roots = values.sqrt().sqrt()  # of the singular values
    inverse = torch.where(roots > 0, 1 / roots, 0)
    if wide:
        b, a = vectors * roots, (vectors.T @ matrix) * inverse[:, None]
    else:
        b, a = (matrix @ vectors) * inverse, (vectors * roots).T
    total = float(matrix.square().sum())
    return Pair(a.float(), b.float()), min(float(values.sum()), total), total
