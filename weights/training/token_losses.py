"""Losses of chosen tokens, with logits at their places alone: those of a window are never whole.

A causal language model of transformers is a base model, which gives hidden states, and a head, which
makes logits of them. Some heads scale or bound the logits. So the model's own `forward` is called on
the hidden states of the chosen places, with a stand-in for the base model that returns these.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

#: Places whose logits are in memory together; the number is part of a training's bits.
PLACES = 512


def token_losses(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    places: torch.Tensor,
    targets: torch.Tensor,
) -> torch.Tensor:
    """Return −log p in nats of `targets` [chosen] at chosen places, float32 [chosen], differentiable.

    `inputs` are those of the module's `forward`, `places` [rows, tokens] is True where the next token
    is chosen. Logits of more than `PLACES` places are computed again in the backward pass.
    """
    base = getattr(module, "base_model", module)
    if not isinstance(module, PreTrainedModel) or base is module:
        logits = module(**inputs).logits[places]
        return F.cross_entropy(logits.float(), targets, reduction="none")
    output = base(**inputs, use_cache=False)
    hidden, losses_of = output.last_hidden_state[places], partial(_losses, module, type(output))
    parts = [*zip(hidden.split(PLACES), targets.split(PLACES), strict=True)]
    if len(parts) == 1:
        return losses_of(*parts[0])
    losses = [checkpoint(losses_of, *part, use_reentrant=False) for part in parts]
    return torch.cat(losses)  # pyright: ignore[reportArgumentType]  # the type of a checkpoint is open


def _losses(
    module: PreTrainedModel, output: type[ModelOutput], hidden: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Return −log p of targets after hidden states, both [places, …]; `output`: the base's answer."""
    base, row = module.base_model, hidden[None]
    forward = vars(base).get("forward")
    base.forward = lambda *_, **__: output(last_hidden_state=row)
    try:
        logits = module(inputs_embeds=row, use_cache=False).logits[0]
    finally:
        del base.forward
        if forward is not None:
            base.forward = forward
    return F.cross_entropy(logits.float(), targets, reduction="none")
