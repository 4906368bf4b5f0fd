"""Codec `ternary@1`: weights of {−s, 0, s}, five trits a byte (1.6 bits), with or without feedback.

One scale for the matrix, as BitNet b1.58 has it (arXiv 2402.17764), or one for each row and group of
input columns. A weight is ±s if it is beyond s / 2, the nearest level.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.codecs import Coded
from agent_forge.weights.codecs.feedback.error_feedback import BLOCK, fed_back
from agent_forge.weights.codecs.matrices import check, normalised, part, restored, whole
from agent_forge.weights.codecs.packing import bits
from agent_forge.weights.codecs.packing.grouped_grid import LEAST, MOST, width
from agent_forge.weights.recipes import Frozen

#: Rounds of the search for least-squares scales; each makes the error smaller, or ends it.
ROUNDS = 20


class TernaryParams(Frozen):
    """The scale, and how it is rounded to."""

    #: Neighbouring input columns of a row that share a scale; 0: one scale for the matrix.
    group: int = Field(default=0, ge=0)
    #: `rms`: `width` root mean squares. `mean`: the mean absolute value, BitNet's. `least-squares`: the
    #: scale of least squared error.
    scale: Literal["rms", "mean", "least-squares"] = "rms"
    #: Root mean squares of a scale by `rms`.
    width: float = Field(default=1.8, gt=0.0, le=10.0)
    #: Error feedback, where a gram is given.
    feedback: bool = True
    #: Share of the gram's mean diagonal that is added to its diagonal.
    damping: float = Field(default=0.01, gt=0.0, le=1.0)


class Ternary:
    """Quantisation to three levels."""

    Params = TernaryParams

    def encode(
        self, matrix: torch.Tensor, gram: torch.Tensor | None, params: TernaryParams, seed: int
    ) -> Coded:
        """Return the coded matrix. Raises ConfigError, NotFiniteError."""
        check(matrix, gram)
        matrix, exponent = normalised(matrix)
        rows, columns = matrix.shape
        group = width(columns, params.group)
        scales = [_scale(matrix.reshape(1, -1), params).expand(rows)] if not params.group else []
        signs = torch.empty((rows, columns), dtype=torch.int8)

        def quantise(column: int, ahead: torch.Tensor) -> torch.Tensor:
            if params.group and column % group == 0:
                scales.append(_scale(ahead[:, :group], params))
            sign = signs[:, column] = _nearest(ahead[:, 0], scales[-1].float())
            return sign * scales[-1].float()

        if gram is None or not params.feedback:
            for column in range(columns):
                quantise(column, matrix[:, column:])
        else:
            block = group * max(1, BLOCK // group) if params.group else BLOCK
            fed_back(matrix, gram, quantise, params.damping, block, ordered=not params.group)
        held = torch.stack(scales, 1) if params.group else scales[0][:1]
        parts = {"trits": bits.pack_trits(signs), "scale": held.contiguous().clone()}
        header = {"exponent": exponent, **({"group": group} if params.group else {})}
        return Coded((rows, columns), header, parts)

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return the decoded matrix, [rows, columns] float32. Raises SourceError."""
        rows, columns = coded.shape
        signs = bits.unpack_trits(part(coded, "trits", torch.uint8), rows * columns)
        if "group" not in coded.header:
            scale = part(coded, "scale", torch.float16, (1,)).float()
        else:
            group = whole(coded, "group", 1, columns)
            held = part(coded, "scale", torch.float16, (rows, -(-columns // group)))
            scale = held.float()[:, torch.arange(columns) // group]
        return restored(coded, signs.view(rows, columns).float() * scale)


def _nearest(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return the nearest trits, int8 of the values' shape; zeros where the scale is zero."""
    beyond = (values.abs() > scales / 2) & (scales > 0)
    return (values.sign() * beyond).to(torch.int8)


def _scale(values: torch.Tensor, params: TernaryParams) -> torch.Tensor:
    """Return the scale of each row of values, float16 [rows]. Raises ConfigError."""
    if params.scale == "rms":
        scales = values.square().mean(1).sqrt() * params.width
    elif params.scale == "mean":
        scales = values.abs().mean(1)
    else:
        scales = _least_squares(values)
    if float(scales.max()) > MOST:
        raise ConfigError("error feedback diverges: use a larger group, or more damping")
    return torch.where(scales > 0, scales.clamp(min=LEAST), scales).half()


def _least_squares(values: torch.Tensor) -> torch.Tensor:
    """Return each row's scale of least squared error, [rows], by Lloyd's rounds (Lloyd 1982)."""
    sizes = values.abs()
    scales = sizes.mean(1)
    for _ in range(ROUNDS):
        active = sizes > scales[:, None] / 2
        scales = (sizes * active).sum(1) / active.sum(1).clamp(min=1)
    return scales
