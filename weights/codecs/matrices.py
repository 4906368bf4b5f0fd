"""Checks of a matrix and of a coded one, and the scale of a matrix, shared by codecs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from runs.errors import ConfigError, NotFiniteError, SourceError


def check(matrix: torch.Tensor, gram: torch.Tensor | None = None) -> None:
    """Raise ConfigError unless `matrix` is [rows, columns] float32 with at least one element.

    `gram` must be [columns, columns] float64. Raises NotFiniteError for NaN or Inf, with the place.
    """
    if matrix.dim() != 2 or matrix.dtype != torch.float32 or matrix.numel() == 0:
        raise ConfigError(
            "a codec takes [rows, columns] float32 with at least one element, not "
            f"{list(matrix.shape)} of {matrix.dtype}."
        )
    _finite(matrix, "the matrix")
    if gram is None:
        return
    columns = matrix.shape[1]
    if gram.shape != (columns, columns) or gram.dtype != torch.float64:
        raise ConfigError(
            f"the Gram matrix of {columns} columns is [{columns}, {columns}] float64, not "
            f"{list(gram.shape)} of {gram.dtype}."
        )
    _finite(gram, "the Gram matrix")


def _finite(values: torch.Tensor, what: str) -> None:
    """Raise NotFiniteError with the first place of NaN or Inf."""
    wrong = torch.nonzero(~torch.isfinite(values))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise NotFiniteError(
            f"{what} has {values[row, column].item()} at row {row}, column {column}; "
            f"{len(wrong)} of {values.numel()} values are not finite numbers."
        )


def scaled(matrix: torch.Tensor) -> tuple[NDArray[np.float64], int]:
    """Return the matrix divided by 2^exponent, float64, and the exponent.

    2^exponent is the power of two nearest to the root mean square, 1 for zeros: the division is exact.
    """
    values = matrix.contiguous().numpy().astype(np.float64)
    square = float(np.sum(values * values)) / values.size
    exponent = 0 if square == 0.0 else round(math.log2(square) / 2)
    return np.ldexp(values, -exponent), exponent


def unscaled(values: NDArray[np.floating], exponent: int) -> torch.Tensor:
    """Return `values` · 2^exponent as contiguous float32; beyond its range, the largest number."""
    most = float(np.finfo(np.float32).max)
    wide = np.ldexp(values.astype(np.float64), exponent).clip(-most, most)
    return torch.from_numpy(wide.astype(np.float32, order="C"))


def whole(header: dict[str, Any], name: str, low: int, high: int) -> int:
    """Return an integer of a header. Raises SourceError unless it is one in `low` … `high`."""
    value = header.get(name)
    if type(value) is not int or not low <= value <= high:
        raise SourceError(f"the header's {name} must be an integer in {low} … {high}: {value!r}.")
    return value


def part(
    parts: dict[str, torch.Tensor], name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Return a part of a coded matrix. Raises SourceError unless it has the shape and dtype."""
    found = parts.get(name)
    if found is None or found.shape != shape or found.dtype != dtype:
        has = "missing" if found is None else f"{list(found.shape)} of {found.dtype}"
        raise SourceError(f"the part {name} must be {list(shape)} of {dtype}; it is {has}.")
    return found
