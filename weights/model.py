"""A model in memory: its config.json and its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weights.tensors import Weights


@dataclass(frozen=True)
class Model:
    """A model as named tensors, and the config that says how to compute with them."""

    #: The content of config.json.
    config: Mapping[str, Any]
    #: Parameters by name, tied ones once. Not to be written to.
    weights: Weights
