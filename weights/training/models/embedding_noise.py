"""Noise on the embeddings that a model reads, in some steps of a training.

After NEFTune (Jain et al. 2023, arXiv 2310.05914), which adds uniform noise to embeddings. Here its
standard deviation is a share of the embeddings' own root mean square, so that it fits every model.
"""

from __future__ import annotations

import math

import torch
from pydantic import BaseModel, ConfigDict, Field

from agent_forge.weights import randomness


class Noise(BaseModel):
    """Noise in the steps `first` … `upto` − 1."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    #: Standard deviation, as a share of the root mean square of a row's embeddings.
    scale: float = Field(gt=0, le=1)
    first: int = Field(ge=0)
    upto: int = Field(ge=0)

    def at(self, step: int) -> bool:
        """Return True if the step has noise."""
        return self.first <= step < self.upto


def drawn(rows: int, tokens: int, width: int, *key: str | int) -> torch.Tensor:
    """Return uniform random numbers of mean 0 and variance 1, [rows, tokens, width] float32."""
    values = (2 * randomness.uniform(rows * tokens * width, *key) - 1) * math.sqrt(3)
    return torch.from_numpy(values.astype("float32").reshape(rows, tokens, width))


def shaken(embedded: torch.Tensor, noise: torch.Tensor, scale: float) -> torch.Tensor:
    """Return embeddings + scale · their root mean square by row · noise, [rows, tokens, width].

    The root mean square is no part of the gradient.
    """
    size = embedded.detach().square().mean((1, 2), keepdim=True).sqrt()
    return embedded + scale * size * noise.to(embedded.device)
