"""Checks of what codecs are given: matrices and grams to encode, parts to decode."""

from __future__ import annotations

import math

import torch

from runs.errors import ConfigError, NotFiniteError, SourceError
from weights.codecs import Coded
from weights.tensors import Shape


def check(matrix: torch.Tensor, gram: torch.Tensor | None) -> None:
    """Check that a matrix and its gram can be encoded.

    Raises ConfigError for other shapes or dtypes, NotFiniteError for NaN or Inf.
    """
    if matrix.dim() != 2 or matrix.dtype != torch.float32 or not matrix.numel():
        raise ConfigError(
            f"a codec takes a float32 matrix with rows and columns, not {list(matrix.shape)} of "
            f"{matrix.dtype}"
        )
    if not torch.isfinite(matrix).all():
        raise NotFiniteError("the matrix holds NaN or Inf: it cannot be encoded")
    if gram is None:
        return
    columns = matrix.shape[1]
    if tuple(gram.shape) != (columns, columns) or gram.dtype != torch.float64:
        raise ConfigError(
            f"the gram of a matrix with {columns} columns is float64 [{columns}, {columns}], not "
            f"{list(gram.shape)} of {gram.dtype}"
        )
    if not torch.isfinite(gram).all():
        raise NotFiniteError("the gram holds NaN or Inf: its calibration is of no use")


def normalised(matrix: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the matrix over a power of two, and the power's exponent: the largest size is in [1, 2).

    The division is exact but for weights below 2⁻¹²⁶ of the largest. A matrix of zeros has exponent 0.
    """
    largest = float(matrix.abs().max())
    exponent = math.frexp(largest)[1] - 1 if largest else 0
    return (matrix.double() * 2.0**-exponent).float(), exponent


def restored(coded: Coded, found: torch.Tensor) -> torch.Tensor:
    """Return decoded weights times the power of two of the header's `exponent`. Raises SourceError."""
    exponent = whole(coded, "exponent", -149, 127)
    result = (found.double() * 2.0**exponent).float()
    if not torch.isfinite(result).all():
        raise SourceError("a weight is NaN, or beyond float32")
    return result


def part(coded: Coded, name: str, dtype: torch.dtype, shape: Shape | None = None) -> torch.Tensor:
    """Return a part of a coded matrix; `shape` None takes any vector.

    Raises SourceError if the part is missing or has another dtype or shape.
    """
    found = coded.parts.get(name)
    if found is None:
        raise SourceError(f"the part {name!r} is missing; there are {sorted(coded.parts)}")
    fits = found.dim() == 1 if shape is None else tuple(found.shape) == shape
    if found.dtype != dtype or not fits:
        wanted = "[any]" if shape is None else list(shape)
        raise SourceError(
            f"the part {name!r} is {list(found.shape)} of {found.dtype}, not {wanted} of {dtype}"
        )
    return found


def whole(coded: Coded, name: str, least: int, most: int) -> int:
    """Return a whole number of the header. Raises SourceError if it is missing or outside of bounds."""
    found = coded.header.get(name)
    if type(found) is not int or not least <= found <= most:
        raise SourceError(
            f"the header's {name!r} is {str(found)[:40]}, not a whole number from {least} to {most}"
        )
    return found
