"""RAM, reinforced agent merging (Yuan et al. 2026, arXiv 2601.13572).

A model has changed an element if |τ| > ε. An element that one model alone has changed is kept
whole. Of an element that several models have changed, the mean over those models is taken. The mean
over all models would dilute the change:

    result = Σ τ over the models that changed the element / their number;  0 if no model did
"""

from __future__ import annotations

import torch
from pydantic import Field

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.weights.recipes import Parameters


class Params(Parameters):
    """Parameters of `ram`. ε is in units of the weights."""

    epsilon: float = Field(default=1e-5, ge=0)


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the mean over the models that changed an element, of float64 task vectors, plainly."""
    masks = x.abs() > params.epsilon
    return (x * masks).sum(dim=0) / masks.sum(dim=0).clamp(min=1)


def changed(x: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return a mask [models, …] of the task vectors' elements that their models have changed."""
    return x[1:].abs() > epsilon


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge`, element by element: no measurement is needed."""
    del work

    def merged(_: slice, x: torch.Tensor) -> torch.Tensor:
        masks = changed(x, params.epsilon)
        total = torch.zeros_like(x[0])
        for row, mask in zip(x[1:], masks, strict=True):
            total.add_(row * mask)
        return total.div_(masks.sum(dim=0).clamp_(min=1))

    return merged
