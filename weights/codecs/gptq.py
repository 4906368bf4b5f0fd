"""Codec `gptq@1`: rounding with error feedback (GPTQ, arXiv 2210.17323), stored as `rtn@1` is."""

from __future__ import annotations

import torch
from pydantic import Field

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.codecs import Coded
from agent_forge.weights.codecs.feedback.error_feedback import BLOCK, fed_back
from agent_forge.weights.codecs.matrices import check, normalised
from agent_forge.weights.codecs.packing import grouped_grid
from agent_forge.weights.codecs.packing.grouped_grid import GridParams, fit, levels, nearest, width


class GptqParams(GridParams):
    """Grids, and the damping of the gram."""

    #: Share of the gram's mean diagonal that is added to its diagonal.
    damping: float = Field(default=0.01, gt=0.0, le=1.0)


class Gptq:
    """Rounding of columns to the nearest levels; later columns make up for the error of earlier ones.

    A group's grid is fitted to its weights after the feedback of earlier groups.
    """

    Params = GptqParams

    def encode(
        self, matrix: torch.Tensor, gram: torch.Tensor | None, params: GptqParams, seed: int
    ) -> Coded:
        """Return the coded matrix. Raises ConfigError without a gram, NotFiniteError."""
        if gram is None:
            raise ConfigError("gptq needs the gram of the layer's inputs: calibrate, or use rtn.")
        check(matrix, gram)
        matrix, exponent = normalised(matrix)
        rows, columns = matrix.shape
        group = width(columns, params.group)
        codes = torch.empty((rows, columns), dtype=torch.uint8)
        scales: list[torch.Tensor] = []
        lows: list[torch.Tensor] = []

        def quantise(column: int, ahead: torch.Tensor) -> torch.Tensor:
            if column % group == 0:
                scale, low = fit(ahead[:, :group], params)
                scales.append(scale)
                lows.append(low)
            lowest = levels(scales[-1], lows[-1], params)
            code = codes[:, column] = nearest(ahead[:, 0], scales[-1], lowest, params.bits)
            return code.float() * scales[-1].float() + lowest

        fed_back(matrix, gram, quantise, params.damping, block=group * max(1, BLOCK // group))
        return grouped_grid.stored(
            codes, torch.stack(scales, 1), torch.stack(lows, 1), params, exponent
        )

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return the decoded matrix, [rows, columns] float32. Raises SourceError."""
        return grouped_grid.decoded(coded)
