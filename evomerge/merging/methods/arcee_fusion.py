"""Arcee Fusion: take the changes that matter most (Arcee AI 2025, "arcee_fusion" in mergekit).

For base b and one other model a, row by row:

    IMPORTANCE  |a − b| · KL(softmax(a) + ε ‖ softmax(b) + ε),  ε = 1e-8, KL of the element's row
    THRESHOLD   median + 1.5 (Q₃ − Q₁) of the tensor's importances
    result      a if the importance reaches the threshold, else b

A vector is one row, whose KL is the same for all its elements, so its importances are |a − b|. The
quantile q of n values is the value that has ⌊q(n − 1)⌋ smaller ones before it in order. KL is computed
in float64, and the quantiles are of all elements. mergekit computes in the working type, in which a
small change's KL is mostly rounding, and draws a random million elements of larger tensors.
"""

from __future__ import annotations

import torch

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.kernels.fused_merge import Voters
from agent_forge.evomerge.merging.methods.kth_magnitude import kth_magnitudes
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters

#: Added to every share of the softmax.
EPSILON = 1e-8


class Params(Parameters):
    """Parameters of `arcee_fusion`: there are none."""


def reference(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Return a float64 model [rows, columns] fused into its base: all importances sorted, plainly."""
    shape = new.shape
    if shape[1] == 1:  # a vector is one row
        new, old = new.T, old.T
    p, q = (torch.softmax(v, dim=1) + EPSILON for v in (new, old))
    importance = (new - old).abs() * (p * (p / q).log()).sum(dim=1, keepdim=True)
    ordered = importance.flatten().sort().values
    first, median, third = (ordered[(len(ordered) - 1) * quarter // 4] for quarter in (1, 2, 3))
    least = median + 1.5 * (third - first)
    return torch.where(importance >= least, new, old).reshape(shape)


def divergence(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Return KL(softmax(new) ‖ softmax(old)) of each row of [rows, columns], float32."""
    p, q = (torch.softmax(v.double(), dim=1).add_(EPSILON) for v in (new, old))
    return (p * (p / q).log_()).sum(dim=1).clamp_(min=0.0).float()


class _Importance:
    """Importances of a tensor as rows, computed stretch by stretch."""

    def __init__(self, work: Stretches) -> None:
        self._work = work
        self.shape = torch.Size((work.rows, work.columns))
        self._rows = torch.ones(work.rows, device=work.pool.device)
        if work.columns > 1:
            parts = work.pool.map(lambda cut: divergence(*self._both(cut)), work.cuts)
            self._rows = torch.cat(list(parts)) if work.cuts else self._rows

    def _both(self, cut: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (the model's stretch, the base's), float32."""
        new, old = self._work.inputs[0], self._work.base
        assert old is not None
        device = self._work.pool.device
        return new[cut].to(device, torch.float32), old[cut].to(device, torch.float32)

    def of(self, delta: torch.Tensor, cut: slice) -> torch.Tensor:
        """Return the importances of a stretch of the task vector; a new tensor."""
        return delta.abs().mul_(self._rows[cut].unsqueeze(1))

    def __getitem__(self, cut: slice, /) -> torch.Tensor:
        new, old = self._both(cut)
        return self.of(new - old, cut)


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge` by the quantiles of the tensor's importances."""
    del params
    if work.count != 1 or work.base is None:
        raise ConfigError(f"arcee_fusion takes a base and one other model, not {work.count}")
    if not work.size:
        return lambda _, x: x[1]
    importance = _Importance(work)
    ranks = [work.size - (work.size - 1) * quarter // 4 for quarter in (1, 2, 3)]
    values = Stretches(work.name, None, [importance], work.pool)
    first, median, third = kth_magnitudes(values, ranks, Voters([1, 1, 1]))
    least = median + 1.5 * (third - first)
    return lambda cut, x: x[1] * (importance.of(x[1], cut) >= least)
