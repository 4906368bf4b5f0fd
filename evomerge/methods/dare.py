"""DARE: drop and rescale (Yu et al. 2024, arXiv 2311.03099).

Each element of a task vector is dropped with probability p, the rest is divided by 1 − p, so that
the expectation is the task vector. p is a multiple of 1/65536 (16-bit lanes), and the rescaling
uses exactly that p.
"""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field

from evomerge import randomness


class Params(BaseModel):
    """Parameters of `dare`; p = 0.9 is the paper's, for small task vectors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    drop: float = Field(default=0.9, ge=0, lt=1)
    weights: tuple[float, ...] | None = None
    scale: float = 1.0


def mask(count: int, drop: float, *key: str | int) -> tuple[torch.Tensor | None, float]:
    """Which of `count` elements are kept (None: all), and the factor of those. `key` names it."""
    dropped = min(round(drop * randomness.LANES), randomness.LANES - 1)
    if dropped == 0:
        return None, 1.0
    lanes = randomness.lanes(count, *key, "dare")
    return torch.from_numpy(lanes >= dropped), randomness.LANES / (randomness.LANES - dropped)


def merge(delta: torch.Tensor, drop: float, *key: str | int) -> torch.Tensor:
    """The float32 task vector, sparse and rescaled; a new tensor. `key` names the mask."""
    kept, factor = mask(delta.numel(), drop, *key)
    return delta.clone() if kept is None else (delta * kept.view(delta.shape)).mul_(factor)
