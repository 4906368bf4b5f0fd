"""Objective `svf`, version 2: another objective, for vectors z that scale a model's singular values.

Only z is trained and stored in snapshots, as in version 1. That version predicts next tokens of text;
this one can also train on answers, and by REINFORCE as in Transformer-Squared (arXiv 2501.06252).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from typing_extensions import override

from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.inner import InnerParams, Outer
from agent_forge.weights.training.objectives.svf import OF, SVD, Svf, pulled
from agent_forge.weights.training.windows import Ids


class SvfOfParams(InnerParams):
    """Parameters of the objective."""

    refused: ClassVar[tuple[str, ...]] = ("cem", "lora", "svf", "ternary")
    what: ClassVar[str] = "vectors"

    #: Weight of the mean of (z − 1)² over all numbers of z, which pulls z towards the given model.
    pull: float = Field(default=0.0, ge=0)


class SvfOf(Outer):
    """Objective: the loss of another objective and a pull; only the vectors are trained."""

    Params = SvfOfParams

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Build the objective; `module` is that of `SvfOf.module`. Raises the objective's errors."""
        params = SvfOfParams.model_validate(recipe.params)
        rest = {role: id_ for role, id_ in recipe.inputs.items() if role not in (OF, SVD)}
        read = {role: inputs[role] for role in rest}
        super().__init__(params, recipe.model_copy(update={"inputs": rest}), module, streams, read)
        self._pull = params.pull
        self._vectors = list(module.parameters())

    @staticmethod
    def module(
        recipe: Train, start: Tensors, inputs: Mapping[str, Tensors], device: str
    ) -> torch.nn.Module:
        """Return the `Vectors` to train: those of `start`, over the model `of`, decomposed in `svd`.

        Raises ConfigError without these inputs, SourceError for vectors that do not fit.
        """
        svf_inputs = {role: id_ for role, id_ in recipe.inputs.items() if role in (OF, SVD)}
        read = {role: model for role, model in inputs.items() if role in (OF, SVD)}
        return Svf.module(recipe.model_copy(update={"inputs": svf_inputs}), start, read, device)

    @override
    def loss(self, part: Batch) -> torch.Tensor:
        """Return the inner objective's loss + pull · mean (z − 1)², a scalar."""
        return pulled(super().loss(part), self._vectors, self._pull)
