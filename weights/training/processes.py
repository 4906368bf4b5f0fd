"""Several processes that share each step: every process computes a part of its rows (data-parallel).

Gradients are averaged over a process group of torch (gloo on processors), so all processes hold the
same weights after every step. The number of processes changes the order of sums: it belongs to the
profile, as the number of threads does, and not to the recipe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import distributed
from torch.distributed.tensor import DTensor

from runs.errors import ConfigError
from weights.training.objectives import Batch


class Processes:
    """One process's place in a group; alone without a group."""

    def __init__(self, group: Any | None, rows: int) -> None:
        """Keep a process group of torch, or None. Raises ConfigError if it cannot share `rows`."""
        self._group = group
        self._count = 1 if group is None else distributed.get_world_size(group)
        self._rank = 0 if group is None else distributed.get_rank(group)
        if rows % self._count:
            raise ConfigError(
                f"{self._count} processes cannot share {rows} rows a part: choose a batch that is a "
                "multiple of accumulation times processes"
            )

    def own(self, part: Batch) -> Batch:
        """Return the rows of a part that this process computes: consecutive ones, by rank."""
        if self._group is None:
            return part
        rows = len(next(iter(part.values()))) // self._count
        return {name: t[self._rank * rows : (self._rank + 1) * rows] for name, t in part.items()}

    def average(self, parameters: Sequence[torch.nn.Parameter], loss: torch.Tensor) -> torch.Tensor:
        """Replace the gradients by their mean over all processes; return the mean loss.

        They travel with the loss as one float32 vector, so each process gets the same bits. Gradients
        of sharded parameters are averaged already (`sharding.py`).
        """
        if self._group is None:
            return loss
        gradients = [p.grad for p in parameters if p.grad is not None]
        gradients = [grad for grad in gradients if not isinstance(grad, DTensor)]
        whole = torch.cat([loss.reshape(1), *(g.flatten() for g in gradients)])
        distributed.all_reduce(whole, group=self._group)
        whole /= self._count
        start = 1
        for gradient in gradients:
            gradient.copy_(whole[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()
        return whole[0]

    def agree(self, stop: bool) -> bool:
        """Return True in every process if it is True in any: they stop after the same step."""
        if self._group is None:
            return stop
        vote = torch.tensor([float(stop)])
        distributed.all_reduce(vote, distributed.ReduceOp.MAX, group=self._group)
        return bool(vote)
