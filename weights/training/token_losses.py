"""Losses of chosen tokens, with logits at their places alone: those of a window are never whole.

A causal language model of transformers is a base model, which gives hidden states, and a head, which
makes logits of them. Some heads scale or bound the logits. So the model's own `forward` is called on
the hidden states of the chosen places, with a stand-in for the base model that returns these.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

#: Class of a model → whether its logits are a function of what its base returns.
_heads: dict[type, bool] = {}
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
    if not isinstance(module, PreTrainedModel) or not _has_head(module, inputs):
        logits = module(**inputs).logits[places]
        return F.cross_entropy(logits.float(), targets, reduction="none")
    output = module.base_model(**inputs, use_cache=False)
    hidden, losses_of = output.last_hidden_state[places], partial(_losses, module, type(output))
    parts = [*zip(hidden.split(PLACES), targets.split(PLACES), strict=True)]
    if len(parts) == 1:
        return losses_of(*parts[0])
    losses = [checkpoint(losses_of, *part, use_reentrant=False) for part in parts]
    return torch.cat(losses)  # pyright: ignore[reportArgumentType]  # the type of a checkpoint is open


@torch.no_grad()
def _has_head(module: PreTrainedModel, inputs: Mapping[str, torch.Tensor]) -> bool:
    """Return True if a model's logits are a function of what its base model returns; once a class.

    Some bases take embeddings and return a tensor; some models call a part of the base.
    """
    if type(module) not in _heads:
        base = module.base_model
        heads = base is not module and {*inputs} <= {*inspect.signature(base.forward).parameters}
        if heads:
            single = {name: tensor[:1, :1] for name, tensor in inputs.items()}
            output = base(**single, use_cache=False)
            hidden = output.get("last_hidden_state") if isinstance(output, ModelOutput) else None
            heads = hidden is not None and _logits(module, type(output), hidden) is not None
        _heads[type(module)] = heads
    return _heads[type(module)]


def _losses(
    module: PreTrainedModel, output: type[ModelOutput], hidden: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Return −log p of targets after hidden states, both [places, …]; `output`: the base's answer."""
    logits = _logits(module, output, hidden[None])
    assert logits is not None
    return F.cross_entropy(logits[0].float(), targets, reduction="none")


def _logits(
    module: PreTrainedModel, output: type[ModelOutput], row: torch.Tensor
) -> torch.Tensor | None:
    """Return the logits that a model makes of hidden states [1, places, …]; None if it ignores them."""
    base, calls = module.base_model, list[ModelOutput]()
    forward = vars(base).get("forward")

    def stand_in(*_: object, **__: object) -> ModelOutput:
        calls.append(output(last_hidden_state=row))
        return calls[-1]

    base.forward = stand_in
    try:
        logits = module(inputs_embeds=row, use_cache=False).logits
    finally:
        del base.forward
        if forward is not None:
            base.forward = forward
    return logits if calls else None
