"""Objective `lora`: another objective, for low-rank adapters of the model instead of all its weights.

The weights of a snapshot are the merged ones, so the result is an ordinary model. The adapters and the
matrices below them are stored beside the optimiser's tensors, because they cannot be read from the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import objectives
from agent_forge.weights.training.models.low_rank import LowRankAdapters
from agent_forge.weights.training.objectives import Batch, Objective
from agent_forge.weights.training.objectives.inner import InnerParams
from agent_forge.weights.training.windows import Ids

#: Objectives that change what layers compute, have further parameters, or use no gradients.
OWN_LAYERS = ("cem", "lora", "svf", "ternary", "thoughts")
#: Optimisers that work with adapters. MuGrokfast's Muon moves whole matrices; QK-Clip scales them.
OPTIMISERS = ("adamw",)


class LoraParams(InnerParams):
    """Parameters of the objective."""

    refused: ClassVar[tuple[str, ...]] = OWN_LAYERS
    what: ClassVar[str] = "adapters"

    #: Columns of the adapters; and α: an adapter's product is multiplied by α / rank.
    rank: int = Field(default=8, ge=1)
    alpha: float = Field(default=16.0, gt=0)
    #: Last parts of the names of the linear layers that are adapted; empty: all of the blocks.
    modules: tuple[str, ...] = ()


class Lora:
    """Objective: the loss of another objective; only adapters are trained."""

    Params = LoraParams
    #: The weights of the module stay as they are.
    frozen = True

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Add adapters to the module, and build the objective.

        Raises ConfigError for an optimiser of whole matrices and for missing layers, and the errors of
        the inner objective.
        """
        params = LoraParams.model_validate(recipe.params)
        if recipe.optimiser.name.partition("@")[0] not in OPTIMISERS:
            raise ConfigError(
                f"the optimiser {recipe.optimiser.name} is for whole matrices: adapters need adamw"
            )
        key = (recipe.seed, recipe.purpose)
        self._adapters = LowRankAdapters(module, params.rank, params.alpha, params.modules, key)
        fields = {"objective": params.objective, "params": params.params}
        objective_class = objectives.of(params.objective)
        self._inner: Objective = objective_class(
            recipe.model_copy(update=fields), module, streams, inputs
        )

    @property
    def tokens(self) -> int:
        """Number of tokens of a step."""
        return self._inner.tokens

    def batch(self, step: int) -> Batch:
        """Return the inner objective's rows of a step, on the processor."""
        return self._inner.batch(step)

    def loss(self, part: Batch) -> torch.Tensor:
        """Return the inner objective's mean loss of some rows, a scalar on the module's device."""
        return self._inner.loss(part)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the adapted layers' matrices as "adapters/…", and the inner state as "inner/…"."""
        return {
            f"{name}/{key}": tensor
            for name, part in (("adapters", self._adapters), ("inner", self._inner))
            for key, tensor in part.state().items()
        }

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the state from the result of `state`. Raises KeyError for other names."""
        for name, part in (("adapters", self._adapters), ("inner", self._inner)):
            start = f"{name}/"
            part_tensors = {k.removeprefix(start): t for k, t in tensors.items() if k.startswith(start)}
            part.load(part_tensors)
