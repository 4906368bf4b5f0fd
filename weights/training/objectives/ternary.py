"""Objective `ternary`: next tokens, predicted with ternary weights (BitNet b1.58, arXiv 2402.17764).

The trained weights stay in full precision; every linear layer but the head computes with their ternary
form, and with int8 activations. The share λ of quantisation rises from 0 to 1 in the first steps,
because full quantisation at once would destroy a trained model.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch.nn import functional as F
from typing_extensions import override

from agent_forge.weights.recipes import Frozen, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.ternary import linears
from agent_forge.weights.training.models.modules import TEACHER, Teacher, divergence
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.next_token import NextToken, check_inputs
from agent_forge.weights.training.windows import Ids


class TernaryObjectiveParams(Frozen):
    """Parameters of the objective."""

    #: Columns of a row that share a scale; 0: one scale for each tensor.
    group: int = Field(default=0, ge=0)
    #: True if layers read their inputs as int8, with a scale for each token.
    int8_activations: bool = True
    #: Share of the steps in which λ rises from 0 to 1; 0: λ is 1 from the first step on.
    warmup: float = Field(default=0.5, ge=0, le=1)
    #: Weight of KL(teacher ‖ model), nats a token; 0: there is no teacher.
    distillation: float = Field(default=0.0, ge=0)


class TernaryObjective(NextToken):
    """Objective: cross-entropy of the next token, nats a token, and divergence from a teacher."""

    Params = TernaryObjectiveParams

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Make the module's linear layers ternary, and build the teacher if there is one.

        Raises ConfigError for other inputs than those that `distillation` needs, and for groups that
        do not fit; SourceChangedError for other data.
        """
        self._params = TernaryObjectiveParams.model_validate(recipe.params)
        needed = [TEACHER] if self._params.distillation else []
        check_inputs("ternary", needed, recipe, inputs)
        super().__init__(recipe.model_copy(update={"inputs": {}}), module, streams, {})
        params = self._params
        self._share = linears.train_ternary(module, params.group, params.int8_activations)
        self._rising = params.warmup * recipe.steps
        self._rows = recipe.batch
        self._teacher = Teacher(inputs[TEACHER], self._device, recipe) if needed else None

    @override
    def batch(self, step: int) -> Batch:
        share = min(1.0, step / self._rising) if self._rising else 1.0
        return {**super().batch(step), "share": torch.full((self._rows,), share)}

    @override
    def loss(self, part: Batch) -> torch.Tensor:
        """Return cross-entropy + distillation · KL(teacher ‖ model), means over tokens, a scalar."""
        self._share.value = float(part["share"][0])
        tokens = part["tokens"].to(self._device)
        logits = self._module(input_ids=tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        if self._teacher is None:
            return loss
        teacher_logits = self._teacher.logits(tokens[:, :-1])
        return loss + self._params.distillation * divergence(teacher_logits, logits)
