"""Codec `rtn@1`: round to nearest, the plainest quantisation. It reads no gram."""

from __future__ import annotations

import torch

from agent_forge.weights.codecs import Coded
from agent_forge.weights.codecs.matrices import check, normalised
from agent_forge.weights.codecs.packing import grouped_grid
from agent_forge.weights.codecs.packing.grouped_grid import GridParams, fit, levels, nearest, width


class RoundToNearest:
    """Rounding of each weight to the nearest level of its group's grid."""

    Params = GridParams

    def encode(
        self, matrix: torch.Tensor, gram: torch.Tensor | None, params: GridParams, seed: int
    ) -> Coded:
        """Return the coded matrix. Raises ConfigError, NotFiniteError."""
        check(matrix, gram)
        matrix, exponent = normalised(matrix)
        group = width(matrix.shape[1], params.group)
        codes, scales, lows = [], [], []
        for values in matrix.split(group, dim=1):
            scale, low = fit(values, params)
            lowest = levels(scale, low, params)
            codes.append(nearest(values, scale[:, None], lowest[:, None], params.bits))
            scales.append(scale)
            lows.append(low)
        return grouped_grid.stored(
            torch.cat(codes, 1), torch.stack(scales, 1), torch.stack(lows, 1), params, exponent
        )

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return the decoded matrix, [rows, columns] float32. Raises SourceError."""
        return grouped_grid.decoded(coded)
