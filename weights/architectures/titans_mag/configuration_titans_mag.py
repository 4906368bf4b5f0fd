"""Configuration of titans_mag models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import PretrainedConfig

#: The form of the memory of a block.
MEMORIES = ("linear", "two-layer", "none")
#: How attention and memory meet.
GATES = ("sum", "product")
#: Bounds of the settings that say how much is computed: config files come from anywhere.
BOUNDS = {
    "sliding_window": (1, 1 << 20),
    "persistent_tokens": (0, 1024),
    "memory_chunk": (1, 1024),
    "memory_width": (1, 1 << 14),
    "convolution": (1, 64),
    "recursions": (1, 64),
}


#: Settings and their defaults.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 128,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 192,
    "max_position_embeddings": 256,
    "sliding_window": 32,
    "persistent_tokens": 4,
    "memory": "linear",
    "memory_chunk": 32,
    "memory_width": 64,
    "memory_step": 1.0,
    "memory_bound": 1.0,
    "gate": "sum",
    "convolution": 4,
    "recursions": 1,
    "halting": False,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "initializer_range": 0.02,
    "use_cache": True,
}


class TitansMagConfig(PretrainedConfig):
    """Settings of a titans_mag model.

    `sliding_window`: how many tokens a token's attention sees, itself included. `persistent_tokens`:
    learned vectors of each block that attention always sees. `memory`: "linear", "two-layer" or "none";
    `memory_chunk`: tokens whose gradients are taken at the same weights; `memory_width`: hidden units
    of a head's two-layer memory; `memory_step`: the largest inner learning rate; `memory_bound`: the
    largest norm of a token's inner gradient. `gate`: "sum" adds the gated memory to attention's
    output, "product" multiplies both. `convolution`: tokens that the causal convolution of the memory's
    inputs covers. `recursions`: how often the blocks are applied, with the same weights; with `halting`
    the model learns how much each application counts for a token.
    """

    model_type = "titans_mag"
    keys_to_ignore_at_inference = ["cache"]

    if TYPE_CHECKING:
        vocab_size: int
        hidden_size: int
        num_hidden_layers: int
        num_attention_heads: int
        num_key_value_heads: int
        intermediate_size: int
        max_position_embeddings: int
        sliding_window: int
        persistent_tokens: int
        memory: str
        memory_chunk: int
        memory_width: int
        memory_step: float
        memory_bound: float
        gate: str
        convolution: int
        recursions: int
        halting: bool
        rms_norm_eps: float
        rope_theta: float
        initializer_range: float
        use_cache: bool

    def __init__(self, *, tie_word_embeddings: bool = True, **settings: Any) -> None:
        """Set and check the settings; missing ones are those of `DEFAULTS`. Raises ValueError."""
        for name, default in DEFAULTS.items():
            setattr(self, name, settings.pop(name, default))
        self._check_settings()
        super().__init__(**{"tie_word_embeddings": tie_word_embeddings, **settings})

    def _check_settings(self) -> None:
        """Raise ValueError, with the setting's name, for a value that no model can have."""
        for name, choices in (("memory", MEMORIES), ("gate", GATES)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is one of {', '.join(choices)}")
        for name, (least, most) in BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is from {least} to {most}")
        for name in ("memory_step", "memory_bound"):
            if not 0 < getattr(self, name) <= 10:
                raise ValueError(f"{name} is above 0, and 10 at most")
        heads, shared = self.num_attention_heads, self.num_key_value_heads
        if heads < 1 or shared < 1 or heads % shared or self.hidden_size % heads:
            raise ValueError("heads divide hidden_size, and key-value heads divide heads")
        if self.hidden_size // heads % 2:
            raise ValueError("the size of a head, hidden_size / num_attention_heads, is even")
        if self.halting and self.recursions == 1:
            raise ValueError("halting needs two recursions or more")
