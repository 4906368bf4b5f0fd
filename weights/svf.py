"""Singular values of a model's matrices: W = U diag(s) Vᵀ, vectors that scale s, and their training.

The decomposition is in float64, with fixed signs. A column of U and its row of Vᵀ may change their
signs together. Here the column's entry of the largest magnitude (the first if several are equal) is
positive. A decomposed model has three tensors for each matrix: NAME/u [rows, rank], NAME/s [rank],
NAME/vt [rank, columns], float64, rank = min(rows, columns).

A vector z scales the singular values of a matrix: W(z) = U diag(s ∘ z) Vᵀ (arXiv 2501.06252).
Here it is

    W(z) = W + U diag(s ∘ (z − 1)) Vᵀ

which differs only by the rounding of the decomposition. It gives W itself at z = 1 and is linear in z,
so the change of a mixture is the sum of its vectors' changes. Experts (vectors) and further models
(task vectors, arXiv 2212.04089) are therefore mixed alike.

In a training the vectors are the module's only parameters, by the names of their matrices, so that a
snapshot of a training is an expert. The frozen weights are neither trained nor stored again.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import parametrize

from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceError
from agent_forge.weights import block_names, pieces
from agent_forge.weights.tensors import Weights

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

#: Ends of the names of a matrix's three factors.
U, S, VT = "/u", "/s", "/vt"


def names(weights: Weights, parts: Collection[str]) -> list[str]:
    """Return the sorted names of the matrices in these parts of blocks: "attention", "mlp", "rest".

    Raises ConfigError if there are none.
    """
    matrix_names = sorted(
        name
        for name, tensor in weights.items()
        if tensor.dim() == 2
        and block_names.block_of(name) is not None
        and block_names.part_of(name) in parts
    )
    if not matrix_names:
        raise ConfigError(
            f"the model has no matrices in {' or '.join(sorted(parts))}: there is nothing to decompose"
        )
    return matrix_names


def factors(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (U [rows, rank], s [rank], descending, Vᵀ [rank, columns]) of a matrix, float64."""
    u, s, vt = torch.linalg.svd(matrix.to(torch.float64), full_matrices=False)
    largest = u.abs().argmax(dim=0)
    signs = torch.where(u[largest, torch.arange(u.shape[1])] < 0, -1.0, 1.0).to(torch.float64)
    return (u * signs).contiguous(), s.contiguous(), (vt * signs[:, None]).contiguous()


def decomposed(weights: Weights, parts: Collection[str]) -> dict[str, torch.Tensor]:
    """Return NAME/u, /s, /vt → factor of matrices in `parts`. Raises ConfigError, NotFiniteError."""
    matrix_names = names(weights, parts)

    def work(number: int) -> pieces.Tensors:
        name = matrix_names[number]
        if not weights[name].isfinite().all():
            raise NotFiniteError(f"tensor {name} holds NaN or Inf: it cannot be decomposed")
        ends = (f"{name}{U}", f"{name}{S}", f"{name}{VT}")
        return dict(zip(ends, factors(weights[name]), strict=True))

    return dict(ChainMap(*map(dict, pieces.each(len(matrix_names), work))))


def matrices(factored: Weights) -> Iterator[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield (name, U, s, Vᵀ) of every matrix of a decomposed model, in order of name."""
    for key in sorted(factored):
        if key.endswith(S):
            name = key.removesuffix(S)
            yield name, factored[f"{name}{U}"], factored[key], factored[f"{name}{VT}"]


#: Name of a tensor → what is added to it at the factor 1, float32; unchanged tensors are left out.
Changes = Mapping[str, torch.Tensor]


def ones(factored: Weights) -> dict[str, torch.Tensor]:
    """Return matrix name → vector of ones, float32 [rank], which changes nothing."""
    return {name: torch.ones(len(s)) for name, _, s, _ in matrices(factored)}


def of_vectors(factored: Weights, vectors: Weights) -> dict[str, torch.Tensor]:
    """Return matrix name → change U diag(s ∘ (z − 1)) Vᵀ, float32; matrices with z = 1 are left out.

    `vectors` are z, float32 [rank], by name of their matrix. Raises SourceError if they do not fit.
    """
    changes: dict[str, torch.Tensor] = {}
    for name, u, s, vt in matrices(factored):
        z = vectors.get(name)
        if z is None or z.shape != s.shape:
            raise SourceError(f"the vectors do not fit: {name} needs {len(s)} numbers")
        if not torch.equal(z, torch.ones_like(z)):
            step = s * (z.to(torch.float64) - 1.0)
            changes[name] = ((u * step) @ vt).to(torch.float32)
    if strange := sorted(set(vectors) - {name for name, *_ in matrices(factored)}):
        raise SourceError(f"the vectors do not fit: there is no matrix {strange[0]}")
    return changes


def of_model(base: Weights, model: Weights) -> dict[str, torch.Tensor]:
    """Return the task vector: tensor name → model − base, float32; equal tensors are left out.

    Raises SourceError if the two are not of one architecture.
    """
    if different := sorted(set(base) ^ set(model)):
        raise SourceError(f"only one of the two models has tensor {different[0]}")
    changes: dict[str, torch.Tensor] = {}
    for name, tensor in base.items():
        other = model[name]
        if other.shape != tensor.shape:
            raise SourceError(f"tensor {name} has shapes {[*tensor.shape]} and {[*other.shape]}")
        if not torch.equal(other.float(), tensor.float()):
            changes[name] = other.float() - tensor.float()
    return changes


def added(
    base: Weights, changes: Sequence[Changes], factors: Sequence[float]
) -> dict[str, torch.Tensor]:
    """Return name → base + Σ factor · change, float32, added in order; other tensors are the base's.

    Multiplications and additions are separate operations, so the bits are the same on every processor.
    """
    weights = dict(base)
    for change, factor in zip(changes, factors, strict=True):
        if factor != 0.0:
            for name, tensor in change.items():
                weights[name] = weights[name] + tensor * factor
    return weights


class Scaled(torch.nn.Module):
    """The matrix W(z) = W + U diag(s ∘ (z − 1)) Vᵀ in float32, as a parametrisation of W."""

    def __init__(
        self, z: torch.nn.Parameter, u: torch.Tensor, s: torch.Tensor, vt: torch.Tensor
    ) -> None:
        """Keep U diag(s) and Vᵀ in float32 on the device of `z`; the caller registers `z`."""
        super().__init__()
        self._z = [z]  # in a list: it is registered where it is trained
        self._left = (u * s).to(z.device, torch.float32)
        self._right = vt.to(z.device, torch.float32)

    def forward(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return W(z) of the matrix W, [rows, columns]."""
        with torch.autocast(matrix.device.type, enabled=False):
            return matrix + (self._left * (self._z[0] - 1.0)) @ self._right


class Vectors(torch.nn.Module):
    """Module whose parameters are the vectors of a model's matrices; it is called as the model is."""

    def __init__(
        self, model: PreTrainedModel, vectors: Weights, factored: Weights, device: str
    ) -> None:
        """Freeze the model, and make copies of the vectors scale its matrices.

        Raises KeyError for a matrix that has no vector.
        """
        super().__init__()
        self._model = [model.requires_grad_(False)]
        for name, u, s, vt in matrices(factored):
            start = vectors[name].detach().to(device, torch.float32, copy=True)
            z = torch.nn.Parameter(start)
            self._register(name, z)
            place, _, leaf = name.rpartition(".")
            scaled = Scaled(z, u, s, vt)
            parametrize.register_parametrization(model.get_submodule(place), leaf, scaled)

    def _register(self, name: str, parameter: torch.nn.Parameter) -> None:
        """Register a parameter under its name, with a module for each part before the last dot."""
        *path, leaf = name.split(".")
        place: torch.nn.Module = self
        for part in path:
            if part not in place._modules:
                place.add_module(part, torch.nn.Module())
            place = place.get_submodule(part)
        place.register_parameter(leaf, parameter)

    @property
    def config(self) -> PreTrainedConfig:
        """The config of the model beneath."""
        return self._model[0].config

    def train(self, mode: bool = True) -> Vectors:
        """Set the mode of this module and of the model beneath; return self."""
        self._model[0].train(mode)
        return super().train(mode)

    def gradient_checkpointing_enable(self, how: dict[str, object]) -> None:
        """Make the model beneath compute its activations again in the backward pass."""
        model = self._model[0]
        newer = getattr(model, "activation_checkpointing_enable", None)
        (newer or model.gradient_checkpointing_enable)(how)

    def forward(self, **arguments: object) -> Any:
        """Return the output of the model beneath, with its singular values scaled."""
        return self._model[0](**arguments)
