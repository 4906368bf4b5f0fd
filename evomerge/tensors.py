"""Names and shapes of tensors in model folders. Pure."""

from __future__ import annotations

from math import prod

Shape = tuple[int, ...]

#: The output head; absent from a folder whose head is the embedding (tied).
HEAD = "lm_head.weight"

#: The names under which architectures keep their token embedding.
EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight", "gpt_neox.embed_in.weight")


def elements(shape: Shape) -> int:
    """How many numbers a tensor of this shape holds."""
    return prod(shape)
