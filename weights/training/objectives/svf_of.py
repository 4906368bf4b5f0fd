"""Objective `svf`, version 2: another objective, for vectors z that scale a model's singular values.

Only z is trained and stored in snapshots, as in version 1. That version predicts next tokens of text;
this one can also train on answers, and by REINFORCE as in Transformer-Squared (arXiv 2501.06252).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field

from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import objectives
from agent_forge.weights.training.objectives import Batch, Objective
from agent_forge.weights.training.objectives.inner import InnerParams
from agent_forge.weights.training.objectives.svf import OF, SVD, Svf
from agent_forge.weights.training.windows import Ids


class SvfOfParams(InnerParams):
    """Parameters of the objective."""

    refused: ClassVar[tuple[str, ...]] = ("cem", "lora", "svf", "ternary")
    what: ClassVar[str] = "vectors"

    #: Weight of the mean of (z − 1)² over all numbers of z, which pulls z towards the given model.
    pull: float = Field(default=0.0, ge=0)


class SvfOf:
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
        fields = {"objective": params.objective, "params": params.params}
        rest = {role: id_ for role, id_ in recipe.inputs.items() if role not in (OF, SVD)}
        inner = recipe.model_copy(update={**fields, "inputs": rest})
        read = {role: inputs[role] for role in rest}
        self._inner: Objective = objectives.of(params.objective)(inner, module, streams, read)
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

    @property
    def tokens(self) -> int:
        """Number of tokens of a step."""
        return self._inner.tokens

    def batch(self, step: int) -> Batch:
        """Return the inner objective's rows of a step, on the processor."""
        return self._inner.batch(step)

    def loss(self, part: Batch) -> torch.Tensor:
        """Return the inner objective's loss + pull · mean (z − 1)², a scalar."""
        loss = self._inner.loss(part)
        if not self._pull:
            return loss
        count = sum(z.numel() for z in self._vectors)
        square = torch.stack([(z - 1.0).square().sum() for z in self._vectors]).sum()
        return loss + self._pull * square / count

    def state(self) -> dict[str, torch.Tensor]:
        """Return the inner objective's state, by name."""
        return self._inner.state()

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the state from the result of `state`. Raises KeyError for other names."""
        self._inner.load(tensors)
