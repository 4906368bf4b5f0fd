"""Module of a model that thinks, for trainings and measurements; and a check of its architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.thoughts import modeling_thoughts
from agent_forge.weights.thoughts.modeling_thoughts import PART
from agent_forge.weights.thoughts.parts import split
from agent_forge.weights.training.models import modules

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Largest allowed difference of a logit that is computed in two ways, in float64: in float32 the
#: logits of SmolLM2-135M, of up to 31, differ by 0.0015.
NEAR = 1e-3


def build(model: Tensors, device: str = "cpu", attention: str = "sdpa") -> PreTrainedModel:
    """Return a causal language model of transformers with the part `thoughts`, in float32.

    Raises SourceError if the weights lack that part, or do not fit.
    """
    plain, thoughts = split(model.weights)
    if "start" not in thoughts:
        raise SourceError("the weights have no part for thoughts: thoughts-init@1 adds it")
    module = modules.build(Tensors(model.config, plain), device, attention)
    try:
        part = modeling_thoughts.loaded(thoughts)
    except RuntimeError as error:
        raise SourceError(f"the part for thoughts does not fit: {error}") from error
    module.add_module(PART, part.float().to(device))
    return module


@torch.no_grad()
def check_heeds(module: PreTrainedModel) -> None:
    """Raise ConfigError unless the model gives the same logits for all thoughts at once as one by one.

    Some architectures ignore a mask of [rows, 1, tokens, tokens], or compute positions themselves. It
    puts the module into evaluation mode and float64, because dropout and rounding would make both ways
    differ.
    """
    module.eval().double()
    part: Any = module.get_submodule(PART)
    embed: Any = module.get_input_embeddings()
    text = torch.arange(1, 5, device=embed.weight.device)[None] % embed.num_embeddings
    ids = torch.stack([text, (text + 3) % embed.num_embeddings], 1)
    layers = modeling_thoughts.embedded(module, part, ids, text[:, None])
    try:
        at_once = modeling_thoughts.forward(module, text, layers).logits
        cached = modeling_thoughts.sampled(module, part, text, 2)
        apart = 0.0
        for place in range(text.shape[1]):
            row = torch.cat([embed(text[:, : place + 1]), layers[:, :, place]], 1)
            expected_logits = module(inputs_embeds=row, use_cache=False).logits[0, place:]
            apart = max(apart, float((at_once[0, :, place] - expected_logits).abs().max()))
        start = part.start.expand(1, 1, -1)
        row = torch.cat([embed(text), start], 1)
        first = module(inputs_embeds=row, use_cache=False).logits[0, -1]
        apart = max(apart, float(first.max() - first[cached[0, 0, -1]]))
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
        raise ConfigError(
            f"the model's architecture cannot compute thoughts: {error}. Give a decoder such as Qwen2 "
            "or Llama."
        ) from error
    if not apart < NEAR:
        raise ConfigError(
            "the model's architecture does not heed the mask that keeps thoughts apart: logits differ "
            f"by {apart:.2g}. Give a decoder such as Qwen2 or Llama."
        )
