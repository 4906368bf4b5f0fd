"""Architecture and sizes of a model, as far as they are known before the model exists. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: Setting of a config.json → its value, of settings that are the number or a side of tensors.
#: Numbers of heads are not among them: tensors may agree although these differ.
Architecture = Mapping[str, Any]
KEYS = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
)


def of_config(config: Mapping[str, Any]) -> Architecture:
    """Return the architecture that a config.json describes; settings that it lacks are left out."""
    return {key: config[key] for key in KEYS if isinstance(config.get(key), int | str)}


def differing(one: Architecture, other: Architecture) -> list[str]:
    """Return the settings in which two architectures differ, of those that both have."""
    return [key for key in KEYS if key in one and key in other and one[key] != other[key]]


def told(one: Architecture, keys: Iterable[str]) -> str:
    """Return an architecture in words, with the settings `keys`."""
    sizes = [f"{key} {one[key]}" for key in keys if key != "model_type"]
    return " of ".join(
        [str(one.get("model_type", "model")), *([", ".join(sizes)] if sizes else [])]
    )
