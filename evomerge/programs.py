"""Merges said as data: what most techniques do to a stretch, so that it can be done in one pass.

    drop inputs → consensus Σ factor · τ → drop of it → vote → dfs → scale

Every stage may be missing. Tensors in the processor's memory are read, merged and rounded block by
block in one compiled loop (`compiled.passes.merged`); a call does the same in torch, elsewhere and
for tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from evomerge import kernels, keys, randomness
from evomerge.kernels import Floats, floats

_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Drop:
    """Of 65536 lanes so many mean that an element is dropped; the others are multiplied."""

    lost: int
    factor: float
    #: What the mask is drawn for; see `randomness.lanes`.
    key: tuple[str | int, ...]

    def of(self, rows: torch.Tensor, start: int) -> torch.Tensor:
        """Rows (float32) that begin at element `start` of their tensor; a new tensor."""
        if self.lost >= randomness.LANES:
            return torch.zeros_like(rows)
        lanes = randomness.lanes(rows.numel(), *self.key, start=start)
        return kernels.drop(rows, lanes, self.lost, self.factor, torch.empty_like(rows))


@dataclass(frozen=True)
class Vote:
    """ELECT and MERGE of TIES, of what lies between bounds; see `kernels.vote`."""

    weights: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    normalise: bool = True

    @property
    def arrays(self) -> tuple[Floats, Floats, Floats]:
        """Bounds from below and above, and weights."""
        count = len(self.weights)
        low = [0.0] * count if self.low is None else self.low
        high = [np.inf] * count if self.high is None else self.high
        return floats(low), floats(high), floats(self.weights)


def consensus(x: torch.Tensor, factors: Sequence[float]) -> torch.Tensor:
    """Σ factor · x[i + 1], in order, put into x[0]. Products are rounded before they are added."""
    torch.mul(x[1], factors[0], out=x[0])
    for layer, factor in zip(x[2:], factors[1:], strict=True):
        x[0].add_(layer * factor)
    return x[0]


@dataclass(frozen=True)
class Voters:
    """Layers whose magnitudes are asked for: 0 is the consensus, 1 and up are the inputs."""

    layers: Sequence[int]
    factors: Sequence[float] | None = None

    def __call__(self, _: slice, x: torch.Tensor) -> list[torch.Tensor]:
        """Those layers of x [1 + inputs, …], whose first is worked in."""
        if self.factors is not None:
            consensus(x, self.factors)
        return [x[layer] for layer in self.layers]


@dataclass(frozen=True)
class Program:
    """What is done to the stretches of one tensor."""

    #: Inputs, and columns of the tensor.
    count: int
    columns: int
    factors: Sequence[float] | None = None
    #: Layer → what is dropped of it: 0 is the consensus.
    drops: Mapping[int, Drop] = field(default_factory=dict)
    vote: Vote | None = None
    #: Of dfs over the consensus, where there is one, and all inputs.
    epsilon: float | None = None
    scale: float = 1.0
    #: The input that the result is made of where no stage makes one.
    taken: int = 1

    @property
    def made(self) -> int:
        """The layer that the result is in."""
        return self.taken if self.factors is None and self.vote is None else 0

    def __call__(self, cut: slice, x: torch.Tensor) -> torch.Tensor:
        """In torch, of float32 x [1 + inputs, rows, columns], of which x[0] is worked in."""
        start = cut.start * self.columns
        if any(self.drops):  # inputs, which are not ours to change
            x = x.clone()
            for layer in filter(None, self.drops):
                x[layer].copy_(self.drops[layer].of(x[layer], start))
        if self.factors is not None:
            consensus(x, self.factors)
            if 0 in self.drops:
                x[0].copy_(self.drops[0].of(x[0], start))
        if self.vote is not None:
            kernels.vote(x if self.factors is not None else x[1:], **vars(self.vote), out=x[0])
        result = x[self.made]
        if self.epsilon is not None:
            result = kernels.select_rows(x[self.made :], self.epsilon)
        if self.scale != 1.0:
            return torch.mul(result, self.scale)
        return x[0].copy_(result) if self.made and self.epsilon is None else result

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """As `compiled.passes.merged` takes it of each program, from `consensus` to `made`."""
        layers = 1 + self.count
        lost = np.zeros(layers, np.int64)
        rescale, words = np.ones(layers, np.float32), np.zeros((layers, 2), np.uint64)
        for layer, drop in self.drops.items():
            key = keys.key(*drop.key)
            lost[layer], rescale[layer] = drop.lost, drop.factor
            words[layer] = key & _WORD, key >> 64
        vote = self.vote or Vote(())
        voters = len(vote.weights)
        bounds = np.zeros((3, layers), np.float32)
        bounds[:, :voters] = vote.arrays
        factors = np.zeros(self.count, np.float32)
        if self.factors is not None:
            factors[:] = floats(self.factors)
        return (
            int(self.factors is not None), factors, lost, rescale, words, voters, *bounds,
            vote.normalise, -1.0 if self.epsilon is None else self.epsilon,
            np.float32(self.scale), self.made,
        )  # fmt: skip


def stacked(programs: Sequence[Program]) -> tuple[Any, ...]:
    """The arguments of several, for one pass."""
    return tuple(np.array(values) for values in zip(*(p.arguments for p in programs), strict=True))
