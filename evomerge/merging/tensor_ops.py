"""Tensor operations: what makes each tensor of a merged model, as data.

A plan is a list of operations. They name the tensors that they read; they hold no weights. `plan.py`
makes a plan of a recipe, `mergekit/plan.py` of a config; `execute.py` carries either out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from pydantic import BaseModel

from agent_forge.evomerge.merging.kernels.chunks import TensorRows, as_rows
from agent_forge.evomerge.recipes.recipe import Noise
from agent_forge.weights.folders.adapter import AdaptedTensors
from agent_forge.weights.tensors import Shape

Weights = Mapping[str, torch.Tensor]


class Read(NamedTuple):
    """A tensor of a model: the model's id (a recipe's id, or a config's reference) and a name."""

    model: str
    tensor: str


class TensorSpec(NamedTuple):
    """Dtype and shape of a tensor."""

    dtype: torch.dtype
    shape: Shape


#: Model → tensor → dtype and shape.
Specs = Mapping[str, Mapping[str, TensorSpec]]


def specs(weights: Weights) -> dict[str, TensorSpec]:
    """Return {name: dtype and shape} of the weights."""
    like = weights.like() if isinstance(weights, AdaptedTensors) else weights
    return {name: TensorSpec(tensor.dtype, tuple(tensor.shape)) for name, tensor in like.items()}


@dataclass(frozen=True)
class TensorOp:
    """One tensor of a result: merge or copy, round, scale, add noise.

    Rows of the inputs are merged by a technique in float32, or copied if there is none, and rounded
    to `rounded`. If `factor` is not 1, the rounded values are multiplied by it in float32 and
    rounded again. Each noise is added to the rounded values; the result is of `dtype`.
    """

    name: str
    shape: Shape
    dtype: torch.dtype
    rounded: torch.dtype
    #: Tensors that are merged; for a copy, the tensor that is copied.
    inputs: tuple[Read, ...]
    #: Zero of the task vectors; None: the inputs are merged as they are.
    base: Read | None = None
    #: Technique in `method_registry`, and its parameters; None: the input is copied.
    technique: str | None = None
    params: BaseModel | None = None
    seed: int = 0
    #: Name of the tensor that random masks are drawn for.
    drawn_as: str = ""
    #: Factor of a path through layers; see `dataflow.py`.
    factor: float = 1.0
    noises: tuple[Noise, ...] = ()
    #: Zero of the task vector that noise is relative to, and the factor of its path.
    origin: Read | None = None
    origin_factor: float = 1.0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def shape_2d(self) -> tuple[int, int]:
        """(rows, columns) of the tensor, as `chunks.as_rows` has them."""
        return self.shape[0] if self.shape else 1, math.prod(self.shape[1:])

    @property
    def reads(self) -> tuple[Read, ...]:
        """All tensors that are read."""
        return tuple(read for read in (*self.inputs, self.base, self.origin) if read is not None)


Plan = Sequence[TensorOp]


def merged(
    name: str,
    spec: TensorSpec,
    technique: str,
    params: BaseModel,
    seed: int,
    inputs: Iterable[Read],
    base: Read | None,
) -> TensorOp:
    """Return the operation that merges one tensor, rounded once to the dtype of `spec`."""
    return TensorOp(
        name,
        spec.shape,
        spec.dtype,
        spec.dtype,
        tuple(inputs),
        base,
        technique,
        params,
        seed,
        drawn_as=name,
    )


def copied(name: str, spec: TensorSpec, read: Read) -> TensorOp:
    """Return the operation that copies a tensor, in the dtype of `spec`."""
    return TensorOp(name, spec.shape, spec.dtype, spec.dtype, (read,), drawn_as=name)


class Sources(Protocol):
    """Models whose tensors are read, in memory or memory-mapped."""

    def rows(self, read: Read) -> TensorRows:
        """Return a tensor of any shape as [rows, columns]."""
        ...

    def read_ahead(self, reads: Iterable[Read]) -> None:
        """Prepare for tensors that are read soon."""
        ...


@dataclass(frozen=True)
class MergeInputs:
    """Models as tensors by id and name, in memory or memory-mapped by `torch`."""

    weights: Mapping[str, Weights]

    def rows(self, read: Read) -> TensorRows:
        """Return a tensor of any shape as [rows, columns]. Raise KeyError."""
        weights = self.weights[read.model]
        if isinstance(weights, AdaptedTensors):
            return weights.rows(read.tensor)
        return as_rows(weights[read.tensor])

    def read_ahead(self, reads: Iterable[Read]) -> None:
        """Do nothing: the tensors are there, or the kernel reads them."""
