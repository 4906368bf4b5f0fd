"""Weights of a model that thinks: its ordinary tensors, and those of `Thoughts` under `thoughts.`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from agent_forge.weights.thoughts import modeling_thoughts
from agent_forge.weights.thoughts.modeling_thoughts import PART

START = f"{PART}."
#: The Python file that lies beside a model that thinks.
MODELING = Path(modeling_thoughts.__file__)


def split(
    weights: Mapping[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return (ordinary tensors, tensors of `Thoughts` without the prefix `thoughts.`) by name."""
    plain = {name: t for name, t in weights.items() if not name.startswith(START)}
    thoughts = {name.removeprefix(START): t for name, t in weights.items() if name.startswith(START)}
    return plain, thoughts
