"""Optimisers of trainings, one a file.

An optimiser is a class with `Settings`, a pydantic model, and:

    Optimiser(module, settings)
    step(rate)       one update in place from the parameters' `.grad`; `rate` is this step's absolute
                     learning rate. The caller sets the gradients to None afterwards
    state()          copies of all tensors that it keeps between steps, by stable names
    load(tensors)    restores the state from the result of `state`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from agent_forge.weights import algorithms

if TYPE_CHECKING:
    import torch

#: Name and version of an optimiser → its class.
OPTIMISERS = {
    "adamw@1": "agent_forge.weights.training.optimisers.adamw:AdamW",
    "mugrokfast@1": "agent_forge.weights.training.optimisers.mugrokfast:MuGrokfast",
    "none@1": "agent_forge.weights.training.optimisers.none:NoOptimiser",
}


class Optimiser(Protocol):
    """The interface of an optimiser."""

    def step(self, rate: float) -> None:
        """Update the parameters in place from their gradients, at the learning rate `rate`."""
        ...

    def state(self) -> dict[str, torch.Tensor]:
        """Return name → each tensor that the optimiser keeps between steps; stable names."""
        ...

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the state from the result of `state`."""
        ...


def of(name: str) -> Any:
    """Return the class of the optimiser NAME@VERSION. Raises UnknownAlgorithmError."""
    return algorithms.find(OPTIMISERS, name, "optimiser")
