"""Objective `svf`: training of vectors z that scale a model's singular values.

Only z is trained and stored in snapshots: NAME of a matrix → [rank]. Version 1 predicts next tokens of
text. Version 2 has another objective inside it: it can also train on answers, and by REINFORCE as in
Transformer-Squared (arXiv 2501.06252). The paper's implementation keeps z positive by a sigmoid. Here a
direction may change its sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field
from typing_extensions import override

from agent_forge.runs.errors import SourceError
from agent_forge.weights import svf
from agent_forge.weights.recipes import Frozen, Train
from agent_forge.weights.svf import Vectors
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.inner import InnerParams, Outer
from agent_forge.weights.training.objectives.next_token import NextToken, check_inputs
from agent_forge.weights.training.windows import Ids

#: Roles of the model whose singular values are scaled, and of its decomposition.
OF, SVD = "of", "svd"


class SvfParams(Frozen):
    """Parameters of the objective."""

    #: Weight of the mean of (z − 1)² over all numbers of z, which pulls z towards the given model.
    pull: float = Field(default=0.0, ge=0)


class Svf(NextToken):
    """Objective: cross-entropy of the next token, nats a token, and a pull towards the model."""

    Params = SvfParams

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Check the streams; `module` is that of `Svf.module`.

        Raises ConfigError for missing streams, SourceChangedError for other data.
        """
        super().__init__(recipe.model_copy(update={"inputs": {}}), module, streams, {})
        self._pull = SvfParams.model_validate(recipe.params).pull
        self._vectors = list(module.parameters())

    @staticmethod
    def module(
        recipe: Train, start: Tensors, inputs: Mapping[str, Tensors], device: str
    ) -> torch.nn.Module:
        """Return the `Vectors` to train: those of `start`, over the model `of`, decomposed in `svd`.

        Raises ConfigError for other inputs, SourceError for vectors that do not fit.
        """
        check_inputs("svf", [OF, SVD], recipe, inputs)
        sizes = {name: len(s) for name, _, s, _ in svf.matrices(inputs[SVD].weights)}
        if {name: len(z) for name, z in start.weights.items()} != sizes:
            raise SourceError("the vectors to begin with are not those of the decomposition")
        model = modules.build(inputs[OF], device, recipe.attention)
        return Vectors(model, start.weights, inputs[SVD].weights, device)

    @override
    def loss(self, part: Batch) -> torch.Tensor:
        """Return cross-entropy + pull · mean (z − 1)², a scalar."""
        return pulled(super().loss(part), self._vectors, self._pull)


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


def pulled(loss: torch.Tensor, vectors: Sequence[torch.Tensor], pull: float) -> torch.Tensor:
    """Return loss + pull · mean (z − 1)² over all numbers of the vectors, a scalar."""
    if not pull:
        return loss
    count = sum(z.numel() for z in vectors)
    square = torch.stack([(z - 1.0).square().sum() for z in vectors]).sum()
    return loss + pull * square / count
