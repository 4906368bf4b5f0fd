"""Cost of a model, by arithmetic (used for decisions), and its measured speed (only reported).

Operations a token: 2 per matrix element for every weight that multiplies (Kaplan et al. 2020, table
1), the embedding look-up left out and the head counted, plus attention over `context` tokens.
Bytes: weights, the key and value cache of `context` tokens, and the activations of one token's
widest layer. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_forge.weights import block_names
from agent_forge.weights.recipes import Frozen
from agent_forge.weights.tensors import HEADS, Shape, elements


class Cost(Frozen):
    """The deterministic cost of an architecture."""

    flops_per_token: float
    bytes: float

    def with_blocks(self, more: int, block: Cost) -> Cost:
        """Return the Cost with `more` blocks of cost `block` added, or removed if it is negative."""
        return Cost(
            flops_per_token=self.flops_per_token + more * block.flops_per_token,
            bytes=self.bytes + more * block.bytes,
        )


class Speed(Frozen):
    """A speed measured once per architecture and device; reported, never used for decisions."""

    tokens_per_second: float
    #: Half the spread between the fastest and the slowest repetition, tokens a second.
    spread: float
    #: Seconds for one window at batch 1.
    latency_seconds: float
    #: Half the spread of the latency, seconds; None if it was not recorded.
    latency_spread: float | None = None
    #: Peak memory of scoring a batch of windows beyond the weights, bytes; None if it cannot be
    #: measured.
    peak_bytes: int | None


def cost(shapes: Mapping[str, Shape], width: int, config: Any, context: int) -> Cost:
    """Return a model's Cost (operations a token, bytes) by its tensors, `width` bytes an element.

    `config` is a transformers configuration.
    """
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers = int(config.num_hidden_layers)
    return _cost(shapes, width, config, context, layers)


def of_block(shapes: Mapping[str, Shape], width: int, config: Any, context: int) -> Cost:
    """Return the Cost (operations a token, bytes) of one block of a model; all blocks cost the same."""
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers = int(config.num_hidden_layers)
    other_shapes = {n: s for n, s in shapes.items() if block_names.block_of(n) != layers - 1}
    whole = _cost(shapes, width, config, context, layers)
    rest = _cost(other_shapes, width, config, context, layers - 1)
    return Cost(
        flops_per_token=whole.flops_per_token - rest.flops_per_token, bytes=whole.bytes - rest.bytes
    )


def _cost(shapes: Mapping[str, Shape], width: int, config: Any, context: int, layers: int) -> Cost:
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    looked_up = {name for name, head in HEADS.items() if {name, head} <= set(matrices)}
    products = sum(elements(s) for name, s in matrices.items() if name not in looked_up)
    hidden = int(config.hidden_size)
    heads = int(config.num_attention_heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    head = int(getattr(config, "head_dim", None) or hidden // heads)
    stored = sum(map(elements, shapes.values())) * width
    cache = 2 * layers * context * kv_heads * head * width
    widest = max(shape[0] for shape in matrices.values()) * width
    flops = 2 * products + 4 * layers * context * heads * head
    return Cost(flops_per_token=float(flops), bytes=float(stored + cache + widest))
