"""Architecture and sizes of a model, as far as they are known before the model exists. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: Setting of a config.json → its value; and `TOKENIZER`, if that is known.
Architecture = Mapping[str, Any]
#: The folder of a model that has the same tokenizer.
TOKENIZER = "tokenizer"
#: Settings that are compared: the number or a side of tensors. Numbers of heads are not among them:
#: tensors may agree although these differ.
KEYS = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")


def of_config(config: Mapping[str, object]) -> Architecture:
    """Return the architecture that a config.json describes: its numbers, texts, and layer types."""
    settings = {key: value for key, value in config.items() if isinstance(value, int | str)}
    types = {"layer_types": config["layer_types"]} if config.get("layer_types") else {}
    return {**settings, **types}


def differing(architecture: Architecture, other: Architecture) -> list[str]:
    """Return the settings in which two architectures differ, of those that both have."""
    return [
        key for key in KEYS if key in architecture and key in other and architecture[key] != other[key]
    ]


def told(architecture: Architecture, keys: Iterable[str]) -> str:
    """Return an architecture in words, with the settings `keys`."""
    sizes = [f"{key} {architecture[key]}" for key in keys if key != "model_type"]
    return " of ".join(
        [str(architecture.get("model_type", "model")), *([", ".join(sizes)] if sizes else [])]
    )
