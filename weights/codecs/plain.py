"""Codec `plain@1`: the weights themselves, in 32 or 16 bits, for norms, biases and other tensors."""

from __future__ import annotations

from typing import Literal

import torch

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.codecs import Coded
from agent_forge.weights.codecs.matrices import check
from agent_forge.weights.recipes import Parameters

DTYPES = {name: getattr(torch, name) for name in ("float32", "float16", "bfloat16")}


class PlainParams(Parameters):
    """The dtype that weights are stored in."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"


class Plain:
    """Storage of weights that are only rounded to a dtype."""

    Params = PlainParams

    def encode(
        self, matrix: torch.Tensor, gram: torch.Tensor | None, params: PlainParams, seed: int
    ) -> Coded:
        """Return the coded matrix. Raises ConfigError for weights beyond the dtype, NotFiniteError."""
        check(matrix)
        held = matrix.to(DTYPES[params.dtype]).contiguous().clone()
        if not torch.isfinite(held).all():
            largest = float(matrix.abs().max())
            raise ConfigError(f"a weight of {largest:.3g} is too large for {params.dtype}")
        return Coded((len(matrix), matrix.shape[1]), {}, {"weights": held})

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return the decoded matrix, [rows, columns] float32. Raises SourceError."""
        held = coded.parts.get("weights")
        if held is None or held.dtype not in DTYPES.values() or tuple(held.shape) != coded.shape:
            raise SourceError(f"no weights of shape {list(coded.shape)} are there")
        return held.float()
