"""Teacher of a distillation: a second model that a training reads, and the divergence from it."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from weights.model import Model
from weights.recipes import Train
from weights.training.models import modules

#: Role of the teacher among a training's inputs.
TEACHER = "teacher"


class Teacher:
    """A model that is asked for its predictions and never trained."""

    def __init__(self, model: Model, device: torch.device, recipe: Train) -> None:
        """Build the model as the trained one is built. Raises SourceError."""
        module: Any = modules.build(model, str(device), recipe.attention, frozen=True)
        self._module = module.eval()
        self.vocabulary = int(module.config.get_text_config().vocab_size)

    @torch.no_grad()
    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits [rows, tokens, vocabulary] after each of the tokens [rows, tokens]."""
        return self._module(input_ids=tokens).logits


def divergence(
    teacher_logits: torch.Tensor, logits: torch.Tensor, temperature: float = 1.0
) -> torch.Tensor:
    """Return the mean over tokens of KL(wanted ‖ given), nats, of two [rows, tokens, vocabulary].

    Both distributions are softened: logits are divided by the temperature.
    """
    model_logs = (logits.flatten(0, 1).float() / temperature).log_softmax(-1)
    teacher_logs = (teacher_logits.flatten(0, 1).float() / temperature).log_softmax(-1)
    return F.kl_div(model_logs, teacher_logs, reduction="batchmean", log_target=True)
