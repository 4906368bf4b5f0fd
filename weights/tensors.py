"""Types of a model's tensors: shapes, weights by name, rows, and `Tensors`, a model in memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

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


class TensorRows(Protocol):
    """Tensor [rows, columns] whose rows are read by slices."""

    @property
    def shape(self) -> torch.Size: ...  # noqa: D102

    def __getitem__(self, cut: slice, /) -> torch.Tensor: ...


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as a [rows, columns] view, a row an output feature; a vector becomes a column."""
    if tensor.dim() < 2:
        return tensor.reshape(-1, 1)
    return tensor.reshape(tensor.shape[0], prod(tensor.shape[1:]))


@dataclass(frozen=True)
class Tensors:
    """A model as named tensors, and the config that says how to compute with them."""

    #: The content of config.json.
    config: Mapping[str, Any]
    #: Parameters by name, tied ones once. Not to be written to.
    weights: Weights
