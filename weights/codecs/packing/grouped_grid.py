"""Grids of evenly spaced levels, with a scale for each row and group of input columns.

A level is low + q · scale, q in [0, 2^bits): multiplied and added in float32, one after the other.
A symmetric grid has low = −scale (2^bits − 1) / 2, so its ends are ± the largest absolute value; an
asymmetric one stores `low`, the smallest value. Scale and low are float16, of a matrix that was divided
by a power of two (`matrices.normalised`).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.codecs import Coded
from agent_forge.weights.codecs.matrices import part, restored, whole
from agent_forge.weights.codecs.packing import bits
from agent_forge.weights.recipes import Frozen

#: The largest float16; and the smallest that is above zero.
MOST, LEAST = 65504.0, 2.0**-24
#: Spans that are tried if a grid may shrink, percent of the whole one.
SHRUNK = range(95, 30, -5)
#: Bits that a level may have.
BITS = (2, 3, 4, 8)


class GridParams(Frozen):
    """Levels, and how many columns share a scale."""

    bits: Literal[2, 3, 4, 8] = 4
    #: Neighbouring input columns that share a scale; 0: all of a row.
    group: int = Field(default=64, ge=0)
    #: Levels on both sides of zero alike; otherwise from the smallest to the largest value.
    symmetric: bool = True
    #: Shrink each grid to the span of least squared error; otherwise it reaches the largest value.
    search: bool = True


def width(columns: int, group: int) -> int:
    """Return how many columns a group has: `group`, or all if that is 0 or more than there are."""
    return columns if group == 0 else min(group, columns)


def fit(values: torch.Tensor, params: GridParams) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (scale, low), float16 [rows] each, of the best grid for one group's [rows, width] values.

    Of spans with equal error it takes the widest. Raises ConfigError for values beyond float16; a
    normalised matrix has such values only after feedback.
    """
    if params.symmetric:
        middle, span = torch.zeros(len(values)), 2.0 * values.abs().amax(1)
    else:
        lowest, highest = values.aminmax(dim=1)
        middle, span = (lowest + highest) / 2, highest - lowest
    if float(span.max()) > MOST or float(middle.abs().max()) > MOST / 2:
        raise ConfigError("error feedback diverges: use more bits, or more damping")
    best = _grid(middle, span, params)
    if not params.search:
        return best
    least = _error(values, *best, params)
    for percent in SHRUNK:
        tried = _grid(middle, span * (percent / 100), params)
        error = _error(values, *tried, params)
        better = error < least
        least = torch.where(better, error, least)
        best = tuple(torch.where(better, new, old) for new, old in zip(tried, best, strict=True))
    return best[0], best[1]


def _grid(
    middle: torch.Tensor, span: torch.Tensor, params: GridParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (scale, low), float16 [rows] each, of grids around `middle`; scale > 0 if span > 0."""
    scale = span / (2**params.bits - 1)
    held = torch.where(scale > 0, scale.clamp(min=LEAST), scale)
    return held.half(), (middle - span / 2).half()


def _error(
    values: torch.Tensor, scale: torch.Tensor, low: torch.Tensor, params: GridParams
) -> torch.Tensor:
    """Return the squared error of each row's values on its grid, float32 [rows]."""
    lowest = levels(scale, low, params)[:, None]
    codes = nearest(values, scale[:, None], lowest, params.bits)
    return (codes.float() * scale.float()[:, None] + lowest - values).square().sum(1)


def levels(scale: torch.Tensor, low: torch.Tensor, params: GridParams) -> torch.Tensor:
    """Return the lowest level of grids with these scales and lows, float32 of their shape."""
    if params.symmetric:
        return scale.float() * (-(2**params.bits - 1) / 2)
    return low.float()


def nearest(values: torch.Tensor, scale: torch.Tensor, lowest: torch.Tensor, size: int):
    """Return the codes of the levels nearest to values, uint8 of `size` bits; shapes broadcast."""
    step = torch.where(scale > 0, scale.float(), torch.ones_like(scale, dtype=torch.float32))
    return ((values - lowest) / step).round().clamp(0, 2**size - 1).to(torch.uint8)


def stored(
    codes: torch.Tensor, scale: torch.Tensor, low: torch.Tensor, params: GridParams, exponent: int
) -> Coded:
    """Return the coded matrix of codes [rows, columns], and of scale and low [rows, groups].

    The matrix was divided by 2^`exponent`.
    """
    parts = {"codes": bits.pack(codes, params.bits), "scale": scale.contiguous()}
    if not params.symmetric:
        parts["low"] = low.contiguous()
    rows, columns = codes.shape
    group = width(columns, params.group)
    header = {"bits": params.bits, "exponent": exponent, "group": group}
    return Coded((rows, columns), header, parts)


def decoded(coded: Coded) -> torch.Tensor:
    """Return the decoded matrix, [rows, columns] float32. Raises SourceError."""
    rows, columns = coded.shape
    size = whole(coded, "bits", min(BITS), max(BITS))
    if size not in BITS:
        raise SourceError(f"levels have {BITS} bits, not {size}")
    group = whole(coded, "group", 1, columns)
    shape = (rows, -(-columns // group))
    params = GridParams(bits=size, symmetric="low" not in coded.parts)
    scale = part(coded, "scale", torch.float16, shape)
    low = scale if params.symmetric else part(coded, "low", torch.float16, shape)
    packed = part(coded, "codes", torch.uint8)
    codes = bits.unpack(packed, size, rows * columns, torch.uint8)
    lowest = levels(scale, low, params)
    of = torch.arange(columns) // group
    decoded_levels = codes.view(rows, columns).float() * scale.float()[:, of] + lowest[:, of]
    return restored(coded, decoded_levels)
