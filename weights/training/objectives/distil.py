"""Objective `distil`: next tokens, predicted as a teacher predicts them (arXiv 1503.02531).

    loss = (1 − α) · cross-entropy + α · T² · KL(teacher ‖ student), both softened by T

T² makes up for the gradients of softened distributions, which shrink by that much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch.nn import functional as F
from typing_extensions import override

from agent_forge.weights.recipes import Frozen, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.models.modules import TEACHER, Teacher, divergence
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.next_token import NextToken, check_inputs
from agent_forge.weights.training.windows import Ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class DistilParams(Frozen):
    """Parameters of the objective."""

    #: α: share of the divergence from the teacher; the text itself has the rest.
    weight: float = Field(default=0.5, gt=0, le=1)
    #: T: both distributions are those of logits divided by it.
    temperature: float = Field(default=1.0, gt=0)


class Distil(NextToken):
    """Objective: cross-entropy of the next token and divergence from a teacher, nats a token."""

    Params = DistilParams

    def __init__(
        self,
        recipe: Train,
        module: PreTrainedModel,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Check the data and build the teacher.

        Raises ConfigError for other inputs than a teacher of the module's vocabulary,
        SourceChangedError for other data.
        """
        check_inputs("distil", [TEACHER], recipe, inputs)
        super().__init__(recipe.model_copy(update={"inputs": {}}), module, streams, {})
        self._params = DistilParams.model_validate(recipe.params)
        self._teacher = Teacher(inputs[TEACHER], self._device, recipe)
        self._teacher.check_vocabulary(module)

    @override
    def loss(self, part: Batch) -> torch.Tensor:
        """Return (1 − α) · cross-entropy + α · T² · KL(teacher ‖ model), means over the tokens."""
        tokens, params = part["tokens"].to(self._device), self._params
        logits = self._module(input_ids=tokens[:, :-1]).logits
        text = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        teacher_logits = self._teacher.logits(tokens[:, :-1])
        apart = divergence(teacher_logits, logits, params.temperature)
        return (1 - params.weight) * text + params.weight * params.temperature**2 * apart
