"""Objective `lora`: another objective, for low-rank adapters of the model instead of all its weights.

The weights of a snapshot are the merged ones, so the result is an ordinary model. The adapters and the
matrices below them are stored beside the optimiser's tensors, because they cannot be read from the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from typing_extensions import override

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.models.low_rank import LowRankAdapters
from agent_forge.weights.training.objectives.inner import InnerParams, Outer
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


class Lora(Outer):
    """Objective: the loss of another objective; only adapters are trained."""

    Params = LoraParams
    #: The weights of the module stay as they are.
    frozen = True
    #: Whether products are fused (`LowRankAdapters`): version 2.
    fused = False

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
        self._adapters = LowRankAdapters(
            module, params.rank, params.alpha, params.modules, key, self.fused
        )
        super().__init__(params, recipe, module, streams, inputs)

    @override
    def state(self) -> dict[str, torch.Tensor]:
        """Return the adapted layers' matrices as "adapters/…", and the inner state as "inner/…"."""
        return {
            f"{name}/{key}": tensor
            for name, part in (("adapters", self._adapters), ("inner", self._inner))
            for key, tensor in part.state().items()
        }

    @override
    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        for name, part in (("adapters", self._adapters), ("inner", self._inner)):
            start = f"{name}/"
            part_tensors = {k.removeprefix(start): t for k, t in tensors.items() if k.startswith(start)}
            part.load(part_tensors)


class FusedLora(Lora):
    """Version 2: the same adapters with fewer passes over large tensors; other last bits."""

    fused = True
