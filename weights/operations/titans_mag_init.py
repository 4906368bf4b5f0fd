"""Operation `titans-mag-init`: a freshly initialised titans_mag model of a given shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from agent_forge.weights import architectures
from agent_forge.weights.architectures.titans_mag.configuration_titans_mag import TitansMagConfig
from agent_forge.weights.architectures.titans_mag.modeling_titans_mag import TitansMagForCausalLM
from agent_forge.weights.operations.qwen2_init import Qwen2Shape, drawn
from agent_forge.weights.tensors import Tensors


class TitansMagShape(Qwen2Shape):
    """The shape of a titans_mag model whose head is its embedding."""

    #: Tokens that attention sees, tokens of a chunk of the memory, learned tokens of a block.
    window: int = Field(ge=1)
    chunk: int = Field(ge=1)
    persistent: int = Field(ge=0)
    memory: Literal["linear", "two-layer", "none"]
    recursions: int = Field(1, ge=1)
    halting: bool = False
    #: Hidden units of a head's two-layer memory, and the largest inner step size of that memory.
    width: int = Field(64, ge=1)
    step: float = Field(0.1, gt=0)


def configuration(shape: TitansMagShape) -> TitansMagConfig:
    """Return the shape as a TitansMagConfig, with `auto_map` naming the code of the architecture.

    The inner step size of a two-layer memory is small, because trainings diverged with larger ones.
    """
    deep = shape.memory == "two-layer"
    settings = {
        "architectures": ["TitansMagForCausalLM"],
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": shape.context,
        "sliding_window": shape.window,
        "memory_chunk": shape.chunk,
        "persistent_tokens": shape.persistent,
        "memory": shape.memory,
        "memory_width": shape.width,
        "memory_step": shape.step if deep else 1.0,
        "recursions": shape.recursions,
        "halting": shape.halting,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "use_cache": False,
        "dtype": "float32",
    }
    settings["auto_map"] = architectures.auto_map({"model_type": TitansMagConfig.model_type})
    return TitansMagConfig(**settings)


class TitansMagInit:
    """Initialisation of a titans_mag model, from torch's generator with a seed.

    The numbers depend on the version of torch, which the profile records.
    """

    Params = TitansMagShape

    def apply(self, inputs: Mapping[str, Tensors], params: TitansMagShape, seed: int) -> Tensors:
        """Return a newly drawn titans_mag model, float32; restore torch's generator.

        Raises ConfigError if there are inputs.
        """
        return drawn("titans-mag-init", TitansMagForCausalLM, configuration(params), inputs, seed)
