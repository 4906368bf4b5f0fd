"""Architectures of bases: what makes the first weights, and what a config.json will say. Pure."""

from __future__ import annotations

from typing import Any

from phases.cognate.presets import Preset, TitansPreset
from runs.kinds.architecture import Architecture

#: Sizes that every architecture has.
SIZES = ("vocabulary", "hidden", "layers", "heads", "kv_heads", "intermediate", "context")
#: Sizes and settings of titans-mag.
TITANS_SIZES = ("window", "chunk", "persistent", "memory", "recursions", "halting")
#: Of a two-layer memory: hidden units of a head, and the largest inner step size.
TWO_LAYER = {"width": 64, "step": 0.1}


def initialisation(size: Preset) -> tuple[str, dict[str, Any]]:
    """Return the operation that draws the first weights, and its parameters."""
    shape = {name: getattr(size, name) for name in SIZES}
    if isinstance(size, TitansPreset):
        own = {name: getattr(size, name) for name in TITANS_SIZES}
        return "titans-mag-init@1", {**shape, **own, **TWO_LAYER}
    return "qwen2-init@1", shape


def described(size: Preset) -> Architecture:
    """Return what is known of the models before they are made, as their config.json will say."""
    return {
        "model_type": "titans_mag" if isinstance(size, TitansPreset) else "qwen2",
        "vocab_size": size.vocabulary,
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
    }
