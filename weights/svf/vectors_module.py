"""A frozen model whose singular values are scaled by vectors, which alone are trained.

The module's parameters are the vectors, by the names of their matrices, so that a snapshot of a
training is an expert. The weights of the model beneath it are neither trained nor stored again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils import parametrize

from weights.svf import decomposition
from weights.tensors import Weights


class Scaled(torch.nn.Module):
    """The matrix W(z) = W + U diag(s ∘ (z − 1)) Vᵀ in float32, as a parametrisation of W."""

    def __init__(
        self, z: torch.nn.Parameter, u: torch.Tensor, s: torch.Tensor, vt: torch.Tensor
    ) -> None:
        """Keep the factors in float32 on the device of `z`; the parameter stays the caller's."""
        super().__init__()
        self._z = [z]  # in a list: it is registered where it is trained
        self._left = (u * s).to(z.device, torch.float32)
        self._right = vt.to(z.device, torch.float32)

    def forward(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return the scaled matrix."""
        with torch.autocast(matrix.device.type, enabled=False):
            return matrix + (self._left * (self._z[0] - 1.0)) @ self._right


class Vectors(torch.nn.Module):
    """The vectors of a model's matrices; called as the model is."""

    def __init__(self, model: Any, vectors: Weights, factored: Weights, device: str) -> None:
        """Freeze the model and let its matrices be scaled by copies of the vectors.

        Raises KeyError for a matrix that has no vector.
        """
        super().__init__()
        self._model = [model.requires_grad_(False)]
        for name, u, s, vt in decomposition.matrices(factored):
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
    def config(self) -> Any:
        """The config of the model beneath."""
        return self._model[0].config

    def train(self, mode: bool = True) -> Vectors:
        """Set the mode of the model beneath, too."""
        self._model[0].train(mode)
        return super().train(mode)

    def gradient_checkpointing_enable(self, how: dict[str, Any]) -> None:
        """Let the model beneath compute its blocks again in the backward pass."""
        model = self._model[0]
        newer = getattr(model, "activation_checkpointing_enable", None)
        (newer or model.gradient_checkpointing_enable)(how)

    def forward(self, **arguments: Any) -> Any:
        """Return what the model beneath does with scaled singular values."""
        return self._model[0](**arguments)
