"""Fused merges: what most techniques do to a stretch, said as data and done in one pass.

    drop inputs → consensus Σ factor · τ → drop of the consensus → vote → dfs → scale

Every stage may be missing. Tensors in the processor's memory are read, merged and rounded block by
block in one compiled loop (`numba.passes.merged`). Calling a `StageProgram` does the same in torch, for
other devices and for tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch

from agent_forge.evomerge.merging.kernels import inner_loops
from agent_forge.evomerge.merging.kernels.inner_loops import floats
from agent_forge.runs import keys
from agent_forge.weights import randomness

_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Drop:
    """Dropout mask with a rescaling factor.

    An element is dropped if its 16-bit random number is below `lost`, else scaled by `factor`.
    """

    lost: int
    factor: float
    #: Name of the mask, which the random numbers follow from; see `randomness.lanes`.
    key: tuple[str | int, ...]

    def of(self, rows: torch.Tensor, start: int) -> torch.Tensor:
        """Return a new tensor: float32 rows that begin at element `start`, dropped and rescaled."""
        if self.lost >= randomness.LANES:
            return torch.zeros_like(rows)
        lanes = randomness.lanes(rows.numel(), *self.key, start=start)
        return inner_loops.drop(rows, lanes, self.lost, self.factor, torch.empty_like(rows))


@dataclass(frozen=True)
class Vote:
    """ELECT and MERGE of TIES over the elements that lie between bounds; see `inner_loops.vote`."""

    weights: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    normalise: bool = True


def consensus(x: torch.Tensor, factors: Sequence[float]) -> torch.Tensor:
    """Put Σ factor · x[i + 1], rounded products added in order, into x[0], and return x[0]."""
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
        """Return the chosen layers of x [1 + inputs, …]; x[0] is worked in."""
        if self.factors is not None:
            consensus(x, self.factors)
        return [x[layer] for layer in self.layers]


@dataclass(frozen=True)
class StageProgram:
    """Stages of a merge that run on the stretches of one tensor."""

    #: Number of inputs, and columns of the tensor.
    count: int
    columns: int
    factors: Sequence[float] | None = None
    #: Layer → its dropout mask; layer 0 is the consensus.
    drops: Mapping[int, Drop] = field(default_factory=dict)
    vote: Vote | None = None
    #: ε of dfs over all inputs and the consensus, if there is one; None: no dfs.
    epsilon: float | None = None
    scale: float = 1.0
    #: The input (from 1) that becomes the result if no stage makes one.
    taken: int = 1

    @property
    def made(self) -> int:
        """The index of the layer that holds the result."""
        return self.taken if self.factors is None and self.vote is None else 0

    def __call__(self, cut: slice, x: torch.Tensor) -> torch.Tensor:
        """Return merged rows of float32 x [1 + inputs, rows, columns], in torch; x[0] is worked in."""
        start = cut.start * self.columns
        if any(self.drops):  # inputs, which must not be changed
            x = x.clone()
            for layer in filter(None, self.drops):
                x[layer].copy_(self.drops[layer].of(x[layer], start))
        if self.factors is not None:
            consensus(x, self.factors)
            if 0 in self.drops:
                x[0].copy_(self.drops[0].of(x[0], start))
        if self.vote is not None:
            inner_loops.vote(x if self.factors is not None else x[1:], **vars(self.vote), out=x[0])
        result = x[self.made]
        if self.epsilon is not None:
            result = inner_loops.select_rows(x[self.made :], self.epsilon)
        if self.scale != 1.0:
            return torch.mul(result, self.scale)
        return x[0].copy_(result) if self.made and self.epsilon is None else result

    @property
    def adds(self) -> bool:
        """True if the program is a scaled consensus and nothing else."""
        nothing_else = not self.drops and self.vote is None and self.epsilon is None
        return self.factors is not None and nothing_else

    def goes_on(self, before: StageProgram) -> bool:
        """Return True if `before` has left in x[0] what this program makes before dfs and scale."""
        if before.epsilon is not None or self.made or before.made:
            return False
        return replace(self, epsilon=None, scale=before.scale) == before

    def _numbers(self) -> list[float]:
        """Return the bounds and weight of every layer that may vote, and the factor of every input.

        The order is low, high, weights ([1 + inputs] each), factors [inputs].
        """
        vote = self.vote or Vote(())
        count, rest = len(vote.weights), [0.0] * (1 + self.count - len(vote.weights))
        low = [0.0] * count if vote.low is None else vote.low
        high = [math.inf] * count if vote.high is None else vote.high
        factors = [0.0] * self.count if self.factors is None else self.factors
        return [*low, *rest, *high, *rest, *vote.weights, *rest, *factors]


def stacked(programs: Sequence[StageProgram]) -> tuple[object, ...]:
    """Return a tuple of arrays for a tensor's programs: the fields of `numba.passes.Programs`."""
    first = programs[0]
    if len(programs) == 1 and not first.drops and first.vote is None:
        factors = None if first.factors is None else tuple(first.factors)
        return _alone(first.count, factors, first.epsilon, first.scale, first.taken)
    return _stacked(programs)


@lru_cache(maxsize=64)
def _alone(
    count: int, factors: tuple[float, ...] | None, epsilon: float | None, scale: float, taken: int
) -> tuple[object, ...]:
    """Return `stacked` of one program, cached because it is the same for many tensors."""
    return _stacked([StageProgram(count, 0, factors, epsilon=epsilon, scale=scale, taken=taken)])


def _stacked(programs: Sequence[StageProgram]) -> tuple[object, ...]:
    shape = len(programs), 1 + programs[0].count
    lost, rescale = np.zeros(shape, np.int64), np.ones(shape, np.float32)
    words = np.zeros((*shape, 2), np.uint64)
    for p, program in enumerate(programs):
        for layer, drop in program.drops.items():
            key = keys.key(*drop.key)
            lost[p, layer], rescale[p, layer] = drop.lost, drop.factor
            words[p, layer] = key & _WORD, key >> 64
    numbers = floats([program._numbers() for program in programs])
    ends = [shape[1], 2 * shape[1], 3 * shape[1]]
    low, high, weights, factors = (part.copy() for part in np.split(numbers, ends, axis=1))
    return (
        np.array([int(p.factors is not None) for p in programs]),
        factors,
        lost,
        rescale,
        words,
        np.array([0 if p.vote is None else len(p.vote.weights) for p in programs]),
        low,
        high,
        weights,
        np.array([p.vote is None or p.vote.normalise for p in programs]),
        np.array([-1.0 if p.epsilon is None else p.epsilon for p in programs]),
        np.array([p.scale for p in programs], np.float32),
        np.array([p.made for p in programs]),
        np.array([p.adds for p in programs]),
        np.array([False, *(p.goes_on(q) for q, p in pairwise(programs))]),
    )
