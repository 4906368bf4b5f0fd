"""What a model costs, by arithmetic (decides), and what was measured (reported). Pure.

Operations a token: 2 per matrix element for every weight that multiplies (Kaplan et al. 2020, table
1), the embedding look-up left out and the head counted, plus attention over `context` tokens.
Bytes: weights, the key and value cache of `context` tokens, and the activations of one token's
widest layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from evomerge.tensors import HEADS, Shape, elements


class Cost(BaseModel):
    """The deterministic cost of an architecture."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    flops_per_token: float
    bytes: float


class Speed(BaseModel):
    """Measured once per architecture and device; reported, never decided by."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens_per_second: float
    #: Half the spread between the fastest and the slowest repetition, tokens a second.
    spread: float
    #: Seconds for one window at batch 1.
    latency_seconds: float
    #: Half the spread of the latency, seconds; None where it was not recorded.
    latency_spread: float | None = None
    #: Peak memory of a forward pass beyond the weights, bytes; None where it cannot be measured.
    peak_bytes: int | None


def cost(shapes: Mapping[str, Shape], width: int, config: Any, context: int) -> Cost:
    """The cost of a model of these tensors, `width` bytes an element, at a context length.

    `config` is a transformers configuration.
    """
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    looked_up = {name for name, head in HEADS.items() if {name, head} <= set(matrices)}
    products = sum(elements(s) for name, s in matrices.items() if name not in looked_up)
    layers, hidden = int(config.num_hidden_layers), int(config.hidden_size)
    heads = int(config.num_attention_heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    head = int(getattr(config, "head_dim", None) or hidden // heads)
    stored = sum(map(elements, shapes.values())) * width
    cache = 2 * layers * context * kv_heads * head * width
    widest = max(shape[0] for shape in matrices.values()) * width
    flops = 2 * products + 4 * layers * context * heads * head
    return Cost(flops_per_token=float(flops), bytes=float(stored + cache + widest))
