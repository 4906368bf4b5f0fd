"""Optimiser `none`, for objectives that move the parameters themselves, without gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from agent_forge.weights.recipes import Parameters


class NoSettings(Parameters):
    """Settings of the optimiser: none."""


class NoOptimiser:
    """An optimiser that changes no parameter and keeps no state."""

    Settings = NoSettings

    def __init__(self, model: torch.nn.Module, settings: NoSettings) -> None:
        """Store nothing."""

    def step(self, rate: float) -> None:
        """Change nothing."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return {}: there is no state."""
        return {}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Raise KeyError for any tensor: there is no state to restore."""
        if tensors:
            raise KeyError(sorted(tensors)[0])
