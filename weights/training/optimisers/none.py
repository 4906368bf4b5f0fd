"""Optimiser `none`: of objectives that move the parameters themselves, without gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import BaseModel, ConfigDict


class NoSettings(BaseModel):
    """Settings of the optimiser: none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NoOptimiser:
    """An optimiser that leaves all parameters as they are, and keeps nothing."""

    Settings = NoSettings

    def __init__(self, model: torch.nn.Module, settings: NoSettings) -> None:
        """Take a module; nothing of it is kept."""

    def step(self, rate: float) -> None:
        """Change nothing."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return nothing."""
        return {}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take back what `state` returned. Raises KeyError for any tensor."""
        if tensors:
            raise KeyError(sorted(tensors)[0])
