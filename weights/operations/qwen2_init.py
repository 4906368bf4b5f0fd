"""Operation `qwen2-init`: a freshly initialised Qwen2 model of a given shape."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from transformers import PreTrainedConfig, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters
from agent_forge.weights.tensors import Tensors


class Qwen2Shape(Parameters):
    """The shape of a Qwen2 model whose head is its embedding."""

    vocabulary: int = Field(ge=1)
    hidden: int = Field(ge=1)
    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    intermediate: int = Field(ge=1)
    #: Longest sequence, tokens.
    context: int = Field(ge=1)


def configuration(shape: Qwen2Shape) -> Qwen2Config:
    """Return the shape as a Qwen2Config of transformers."""
    return Qwen2Config(
        architectures=["Qwen2ForCausalLM"],
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.intermediate,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        use_cache=False,
        dtype="float32",
    )


class Qwen2Init:
    """Initialisation of a Qwen2 model by transformers, from torch's generator with a seed.

    The numbers depend on the versions of torch and transformers, which the profile records.
    """

    Params = Qwen2Shape

    def apply(self, inputs: Mapping[str, Tensors], params: Qwen2Shape, seed: int) -> Tensors:
        """Return a newly drawn Qwen2 model, float32; restore torch's generator.

        Raises ConfigError if there are inputs.
        """
        return drawn("qwen2-init", Qwen2ForCausalLM, configuration(params), inputs, seed)


def drawn(
    operation: str,
    model: type[PreTrainedModel],
    config: PreTrainedConfig,
    inputs: Mapping[str, Tensors],
    seed: int,
) -> Tensors:
    """Return a newly drawn model of a class, float32; restore torch's generator.

    Raises ConfigError if the `operation` has inputs.
    """
    if inputs:
        raise ConfigError(f"{operation} reads no inputs, not {sorted(inputs)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = model(config)
    weights = {name: p.detach() for name, p in module.named_parameters()}
    return Tensors(module.config.to_dict(), weights)
