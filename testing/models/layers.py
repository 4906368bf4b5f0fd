"""Matrices of layers and the grams of their inputs, made by hand for tests of codecs."""

from __future__ import annotations

import torch

from agent_forge.runs import keys


def matrix(rows: int, columns: int, seed: int = 0, scale: float = 0.05) -> torch.Tensor:
    """Return a Gaussian matrix, float32."""
    values = keys.generator("layer", seed).standard_normal((rows, columns))
    return torch.from_numpy(values).float() * scale


def gram(columns: int, seed: int = 0, samples: int = 400) -> torch.Tensor:
    """Return the mean of x xᵀ over inputs whose columns depend on one another, float64."""
    rng = keys.generator("gram", seed)
    mixed = rng.standard_normal((samples, columns)) @ rng.standard_normal((columns, columns))
    inputs = torch.from_numpy(mixed)
    return inputs.T @ inputs / samples


def weighted_error(error: torch.Tensor, gram: torch.Tensor) -> float:
    """Return tr(E H Eᵀ): the mean squared error of a layer's outputs, all outputs together."""
    wide = error.double()
    return float((wide @ gram * wide).sum())
