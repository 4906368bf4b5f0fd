"""Names and shapes of tensors in model folders. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]
#: A model's tensors by name.
Weights = Mapping[str, "torch.Tensor"]

#: Token embedding → output head, by the names of the architectures. A folder whose head is the
#: embedding (tied) does not store the head.
HEADS = {
    "model.embed_tokens.weight": "lm_head.weight",
    "transformer.wte.weight": "lm_head.weight",
    "gpt_neox.embed_in.weight": "embed_out.weight",
}


def elements(shape: Shape) -> int:
    """Return how many numbers a tensor of this shape holds."""
    return prod(shape)
