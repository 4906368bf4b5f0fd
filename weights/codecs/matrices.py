"""Checks of matrices and of coded matrices, and division of a matrix by a power of two.

A codec divides by the largest element (`normalised`) or by the root mean square (`scaled`), and once
landed keeps its choice.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceError
from agent_forge.weights.codecs import Coded
from agent_forge.weights.tensors import Shape


def check(matrix: torch.Tensor, gram: torch.Tensor | None = None) -> None:
    """Raise ConfigError for another shape or dtype than a codec takes, NotFiniteError for NaN or Inf.

    `matrix` is [rows, columns] float32 with at least one element, `gram` [columns, columns] float64.
    """
    if matrix.dim() != 2 or matrix.dtype != torch.float32 or not matrix.numel():
        raise ConfigError(
            "a codec takes a float32 matrix [rows, columns] with at least one element, not "
            f"{list(matrix.shape)} of {matrix.dtype}."
        )
    _finite(matrix, "the matrix")
    if gram is None:
        return
    columns = matrix.shape[1]
    if gram.shape != (columns, columns) or gram.dtype != torch.float64:
        raise ConfigError(
            f"the gram of a matrix with {columns} columns is float64 [{columns}, {columns}], not "
            f"{list(gram.shape)} of {gram.dtype}."
        )
    _finite(gram, "the gram")


def _finite(values: torch.Tensor, what: str) -> None:
    """Raise NotFiniteError with the first place of NaN or Inf, if there is one."""
    wrong = torch.nonzero(~torch.isfinite(values))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise NotFiniteError(
            f"{what} has {values[row, column].item()} at row {row}, column {column}; "
            f"{len(wrong)} of {values.numel()} values are NaN or Inf."
        )


def normalised(matrix: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return (matrix / 2^exponent, float32, exponent), with the largest size in [1, 2).

    A matrix of zeros has exponent 0. The division is exact except for weights below 2⁻¹²⁶ of the
    largest.
    """
    largest = float(matrix.abs().max())
    exponent = math.frexp(largest)[1] - 1 if largest else 0
    return (matrix.double() * 2.0**-exponent).float(), exponent


def restored(coded: Coded, weights: torch.Tensor) -> torch.Tensor:
    """Return weights · 2^exponent, float32, by the header's `exponent`. Raises SourceError."""
    exponent = whole(coded, "exponent", -149, 127)
    result = (weights.double() * 2.0**exponent).float()
    if not torch.isfinite(result).all():
        raise SourceError("a weight is NaN, or beyond float32")
    return result


def scaled(matrix: torch.Tensor) -> tuple[NDArray[np.float64], int]:
    """Return (matrix / 2^exponent, [rows, columns] float64, exponent).

    2^exponent is the power of two nearest to the root mean square, 1 for zeros. The division is exact.
    """
    values = matrix.contiguous().numpy().astype(np.float64)
    square = float(np.sum(values * values)) / values.size
    exponent = 0 if square == 0.0 else round(math.log2(square) / 2)
    return np.ldexp(values, -exponent), exponent


def unscaled(values: NDArray[np.floating], exponent: int) -> torch.Tensor:
    """Return `values` · 2^exponent, contiguous float32 of the same shape, clipped to its range."""
    most = float(np.finfo(np.float32).max)
    wide = np.ldexp(values.astype(np.float64), exponent).clip(-most, most)
    return torch.from_numpy(wide.astype(np.float32, order="C"))


def whole(coded: Coded, name: str, least: int, most: int) -> int:
    """Return the header's integer `name`. Raises SourceError unless it is in `least` … `most`."""
    number = coded.header.get(name)
    if type(number) is not int or not least <= number <= most:
        raise SourceError(
            f"the header's {name} must be an integer in {least} … {most}; it is {str(number)[:40]}."
        )
    return number


def part(coded: Coded, name: str, dtype: torch.dtype, shape: Shape | None = None) -> torch.Tensor:
    """Return the part `name` of a coded matrix; `shape` None takes a vector of any length.

    Raises SourceError if the part is missing or has another dtype or shape.
    """
    tensor = coded.parts.get(name)
    if tensor is None:
        raise SourceError(f"the part {name} is missing; there are {sorted(coded.parts)}.")
    fits = tensor.dim() == 1 if shape is None else tuple(tensor.shape) == shape
    if tensor.dtype != dtype or not fits:
        shape_text = "a vector" if shape is None else list(shape)
        raise SourceError(
            f"the part {name} must be {shape_text} of {dtype}; it is {list(tensor.shape)} of "
            f"{tensor.dtype}."
        )
    return tensor
