"""TIES: trim, elect sign, disjoint merge (Yadav et al. 2023, arXiv 2306.01708, algorithm 1).

Per tensor, for task vectors τᵢ with weights wᵢ:

    TRIM   keep the k = round(density · n) largest |τ|, and every other |τ| equal to the k-th
    ELECT  s = sign(Σ wᵢ τᵢ), zero counts as +
    MERGE  mean, weighted, of those wᵢτᵢ whose sign is s; zero where none is

Thresholds are per tensor; the paper's own code takes one threshold per flattened model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch.nn import functional as F

from evomerge.errors import ConfigError
from evomerge.methods import linear
from evomerge.methods.select import kth_magnitude

_ONE = torch.ones(())


class Params(BaseModel):
    """Parameters of `ties`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    density: float = Field(default=0.2, ge=0, le=1)
    weights: tuple[float, ...] | None = None
    scale: float = 1.0


def threshold(delta: torch.Tensor, density: float) -> float:
    """The smallest |τ| that TRIM keeps: the k-th largest; 0 keeps all, infinity nothing."""
    count = delta.numel()
    kept = round(density * count)
    if kept >= count:
        return 0.0
    if kept == 0:
        return math.inf
    return kth_magnitude(delta, kept)


def cut(delta: torch.Tensor, smallest: float) -> torch.Tensor:
    """The delta with every |element| below `smallest` set to zero; the input itself at 0."""
    if smallest == 0.0:
        return delta
    below = np.nextafter(np.float32(smallest), np.float32(0.0))  # hardshrink keeps what is above
    return F.hardshrink(delta, float(below))


def elect(trimmed: Sequence[torch.Tensor], weights: Sequence[float]) -> torch.Tensor:
    """ELECT and MERGE on trimmed task vectors of one shape; a new tensor."""
    votes = linear.combine(trimmed, weights)
    sign = torch.copysign(_ONE, votes.add_(0.0))
    total, share = torch.zeros_like(votes), torch.zeros_like(votes)
    agreeing = votes
    for delta, weight in zip(trimmed, weights, strict=True):
        if weight == 0.0:
            continue
        torch.mul(delta, sign, out=agreeing).clamp_(min=0.0)
        total.add_(agreeing, alpha=weight)
        share.add_(agreeing.sign_(), alpha=weight)
    # Nobody agrees: total is zero and any divisor will do.
    least = min((weight for weight in weights if weight), default=1.0)
    return total.div_(share.clamp_(min=least)).mul_(sign)


def trim(delta: torch.Tensor, density: float) -> torch.Tensor:
    """The delta with all but its largest |elements| set to zero; the input itself at density 1."""
    return cut(delta, threshold(delta, density))


def merge(
    deltas: Sequence[torch.Tensor], density: float, weights: Sequence[float] | None = None
) -> torch.Tensor:
    """The merged task vector of float32 task vectors of one shape; a new tensor."""
    weights = [1.0] * len(deltas) if weights is None else list(weights)
    if len(weights) != len(deltas) or min(weights) < 0:
        raise ConfigError(f"ties takes one weight of 0 or more a model, not {weights}")
    return elect([trim(delta, density) for delta in deltas], weights)
