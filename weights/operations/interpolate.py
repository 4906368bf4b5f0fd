"""Operation `interpolate`: a model on the straight line between two others."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.recipes import Frozen
from agent_forge.weights.tensors import Tensors

ROLES = ("end", "start")


class LinePlace(Frozen):
    """A place on the line: 0 is `start`, 1 is `end`; outside of [0, 1] it extrapolates."""

    place: float = Field(default=0.5)


class Interpolate:
    """Interpolation of all tensors in float32; each result has the dtype of that tensor in `start`.

    Multiplications and additions are separate operations, so the bits are the same on every
    processor. Half-baking (arXiv 2409.13697) is `place` 0.5 between a model and its baked form.
    """

    Params = LinePlace

    def apply(self, inputs: Mapping[str, Tensors], params: LinePlace, seed: int) -> Tensors:
        """Return the model start + place · (end − start); at 0 and 1 it is exactly `start` and `end`.

        Raises ConfigError for other roles, SourceError if names or shapes differ.
        """
        if sorted(inputs) != list(ROLES):
            raise ConfigError(f"interpolate reads the inputs start and end, not {sorted(inputs)}")
        start, end = inputs["start"], inputs["end"]
        if set(start.weights) != set(end.weights):
            lacking = sorted(set(start.weights) ^ set(end.weights))[0]
            raise SourceError(f"interpolate: only one of the two models has tensor {lacking}")
        mixed = {n: _between(n, t, end.weights[n], params.place) for n, t in start.weights.items()}
        return Tensors(start.config, mixed)


def _between(name: str, a: torch.Tensor, b: torch.Tensor, place: float) -> torch.Tensor:
    """Return a + place · (b − a) in the dtype of `a`, computed in float32 from the nearer end."""
    if a.shape != b.shape:
        raise SourceError(f"interpolate: tensor {name} has shapes {[*a.shape]} and {[*b.shape]}")
    low, high = a.float(), b.float()
    step = high - low
    mixed = low + step * place if place < 0.5 else high - step * (1.0 - place)
    return mixed.to(a.dtype)
