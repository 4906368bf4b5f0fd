"""The factor that error feedback needs (GPTQ, arXiv 2210.17323, section 3.3), in one order of sums.

`error_feedback.inverse_factor` computes the same U by LAPACK, with other last bits. A landed codec
keeps its factor, because other bits can change what the codec writes.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.codecs.search.compiler import compiled


@compiled
def _factor(matrix):  # pyright: ignore
    """Replace the lower triangle by L with L Lᵀ = matrix; return False if there is no such L."""
    size = matrix.shape[0]
    column = np.empty(size)
    for j in range(size):
        if not matrix[j, j] > 0.0:
            return False
        root = np.sqrt(matrix[j, j])
        matrix[j, j] = root
        for i in range(j + 1, size):
            matrix[i, j] /= root
            column[i] = matrix[i, j]
        for i in range(j + 1, size):
            factor, row = column[i], matrix[i]
            for k in range(j + 1, i + 1):
                row[k] -= factor * column[k]
    return True


@compiled
def _invert(upper):  # pyright: ignore
    """Return the inverse of an upper triangular matrix, of the same shape, float64."""
    size = upper.shape[0]
    inverse = np.zeros((size, size))
    for i in range(size - 1, -1, -1):
        row = inverse[i]
        row[i] = 1.0
        for k in range(i + 1, size):
            factor, other = upper[i, k], inverse[k]
            for j in range(k, size):
                row[j] -= factor * other[j]
        scale = upper[i, i]
        for j in range(i, size):
            row[j] /= scale
    return inverse


def inverse_factor(gram: torch.Tensor, damping: float) -> NDArray[np.float64]:
    """Return the upper triangular U with UᵀU = H⁻¹, [columns, columns] float64, in one order of sums.

    H = `gram` + `damping` · mean of its diagonal · I; a Gram matrix of zeros counts as I. With the
    columns reversed H has a factor L Lᵀ, so H = R Rᵀ with R upper triangular, and U = R⁻¹. Raises
    ConfigError if H has no such factor: `gram` is not positive semidefinite.
    """
    hessian = gram.numpy().copy()
    mean = float(np.diagonal(hessian).mean())
    hessian[np.diag_indices_from(hessian)] += damping * mean if mean > 0.0 else 1.0
    backwards = np.ascontiguousarray(hessian[::-1, ::-1])
    if not _factor(backwards):
        raise ConfigError("the Gram matrix is not positive semidefinite, so it is none.")
    return _invert(np.ascontiguousarray(np.tril(backwards)[::-1, ::-1]))
