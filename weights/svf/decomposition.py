"""Singular value decomposition of a model's matrices: W = U diag(s) Vᵀ, in float64, signs fixed.

A column of U and its row of Vᵀ may change their signs together. Here the largest entry of the column,
by magnitude, is positive; of equal ones the first. A decomposed model has three tensors for each
matrix: NAME/u [rows, rank], NAME/s [rank], NAME/vt [rank, columns], float64, rank = min(rows, columns).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch

from runs.errors import ConfigError, NotFiniteError
from weights import block_names
from weights.tensors import Weights

#: What the name of a matrix ends with for its three factors.
U, S, VT = "/u", "/s", "/vt"


def names(weights: Weights, parts: Collection[str]) -> list[str]:
    """Return the names of the matrices in some parts of the blocks, sorted.

    `parts` are of `block_names.PARTS`. Raises ConfigError if there are none.
    """
    matrix_names = sorted(
        name
        for name, tensor in weights.items()
        if tensor.dim() == 2
        and block_names.block_of(name) is not None
        and block_names.part_of(name) in parts
    )
    if not matrix_names:
        raise ConfigError(
            f"the model has no matrices in {' or '.join(sorted(parts))}: there is nothing to decompose"
        )
    return matrix_names


def factors(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return U [rows, rank], s [rank], descending, and Vᵀ [rank, columns] of a matrix, float64."""
    u, s, vt = torch.linalg.svd(matrix.to(torch.float64), full_matrices=False)
    largest = u.abs().argmax(dim=0)
    signs = torch.where(u[largest, torch.arange(u.shape[1])] < 0, -1.0, 1.0).to(torch.float64)
    return (u * signs).contiguous(), s.contiguous(), (vt * signs[:, None]).contiguous()


def decomposed(weights: Weights, parts: Collection[str]) -> dict[str, torch.Tensor]:
    """Return the factors of all matrices in some parts. Raises ConfigError, NotFiniteError."""
    factor_tensors: dict[str, torch.Tensor] = {}
    for name in names(weights, parts):
        if not weights[name].isfinite().all():
            raise NotFiniteError(f"tensor {name} holds NaN or Inf: it cannot be decomposed")
        u, s, vt = factors(weights[name])
        factor_tensors |= {f"{name}{U}": u, f"{name}{S}": s, f"{name}{VT}": vt}
    return factor_tensors


def matrices(
    factored: Weights,
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield (name, U, s, Vᵀ) of every matrix of a decomposed model, in order of name."""
    for key in sorted(factored):
        if key.endswith(S):
            name = key.removesuffix(S)
            yield name, factored[f"{name}{U}"], factored[key], factored[f"{name}{VT}"]
