"""Objective `answers`, version 2: that of version 1, with noise in some steps and a self-model.

    loss = −log p of the answers, as in `answers@1`
         + weight · (the part of an inner layer's activations that the last layer does not predict)

Without both it is `answers@1` to the last bit. The noise of a step has the key (seed, purpose, step).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional as F
from typing_extensions import override

from agent_forge.weights.recipes import Frozen, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.models import embedding_noise, self_model
from agent_forge.weights.training.models.embedding_noise import Noise
from agent_forge.weights.training.models.self_model import SelfModel
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.answers import Answers
from agent_forge.weights.training.windows import Ids


class BesideParams(Frozen):
    """Parameters of the objective."""

    #: Noise on the embeddings; None: none.
    noise: Noise | None = None
    #: Self-model; None: none.
    self_model: SelfModel | None = None


class AnswersBeside(Answers):
    """Objective: the loss of answers under noise, plus that of a self-model."""

    Params = BesideParams

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Check the streams as `answers@1` does. Raises ConfigError for a layer that is missing."""
        super().__init__(recipe, module, streams, inputs)
        self._params = BesideParams.model_validate(recipe.params)
        trained: Any = module
        self._width = int(trained.get_input_embeddings().weight.shape[1])
        self_settings, blocks = (
            self._params.self_model,
            trained.config.get_text_config().num_hidden_layers,
        )
        #: The layer that a self-model predicts.
        self._layer = self_settings.of(int(blocks)) if self_settings is not None else 0

    @override
    def batch(self, step: int) -> Batch:
        """Return the rows of `answers@1`, with "noise" and "read" if the settings ask for them.

        "noise": [batch, context, width] float32, in steps with noise; "read": [batch, context] bool,
        with a self-model, True up to the row's last answer.
        """
        step_batch = dict(super().batch(step))
        rows, tokens = step_batch["answers"].shape
        noise = self._params.noise
        if noise is not None and noise.at(step):
            key = ("noise", self._recipe.seed, self._recipe.purpose, step)
            step_batch["noise"] = embedding_noise.drawn(rows, tokens, self._width, *key)
        if self._params.self_model is not None:
            later = step_batch["answers"].flip(-1).cumsum(-1).flip(-1)
            step_batch["read"] = later > 0
        return step_batch

    @override
    def loss(self, part: Batch) -> torch.Tensor:
        """Return the loss of the answers plus weight · that of the self-model, a scalar."""
        tokens, answers = part["tokens"].to(self._device), part["answers"].to(self._device)
        places = part["places"].to(self._device)
        module: Any = self._module
        self_settings = self._params.self_model
        arguments: dict[str, object] = {"input_ids": tokens[:, :-1]}
        if "noise" in part and self._params.noise is not None:
            embedded = module.get_input_embeddings()(tokens[:, :-1])
            shaken = embedding_noise.shaken(embedded, part["noise"], self._params.noise.scale)
            arguments = {"inputs_embeds": shaken}
        if self_settings is not None:
            arguments["output_hidden_states"] = True
        output = module(**arguments, position_ids=places[:, :-1])
        lost = F.cross_entropy(output.logits[answers], tokens[:, 1:][answers], reduction="sum")
        lost = lost * (float(part["scale"][0]) / len(tokens))
        if self_settings is None:
            return lost
        read = part["read"].to(self._device)
        inner, last = output.hidden_states[self._layer], output.hidden_states[-1]
        return lost + self_settings.weight * self_model.untold(inner[read], last[read])
