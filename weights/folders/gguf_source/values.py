"""Values of tensors of GGUF files as float32, in pieces that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator

import gguf
import numpy as np

from runs.errors import NotFiniteError, SourceError
from weights.folders.gguf_source.header import Tensor, rows
from weights.tensors import elements

#: Numbers that are made at once, unless one row has more.
PIECE = 1 << 22


def read_vector(tensor: Tensor) -> np.ndarray:
    """Return all numbers of a small tensor, flat."""
    return np.concatenate([piece.ravel() for piece in pieces("", tensor)])


def pieces(name: str, tensor: Tensor, most: int = PIECE) -> Iterator[np.ndarray]:
    """Yield the rows of a tensor in order: float32 [rows, width].

    The file is read, not mapped: it may be cut short meanwhile. Raise SourceError for that,
    NotFiniteError for NaN or Inf in the tensor `name`.
    """
    width = tensor.shape[-1]
    block, size = gguf.GGML_QUANT_SIZES[tensor.type]
    row = width // block * size
    count = elements(tensor.shape) // width
    step = max(1, most // width)
    with tensor.file.open("rb") as opened:
        opened.seek(tensor.begin)
        for first in range(0, count, step):
            content = opened.read(min(step, count - first) * row)
            if len(content) != min(step, count - first) * row:
                raise SourceError(f"{tensor.file} became shorter while it was read. Try again.")
            values = rows(content, tensor.type, width)
            if not np.isfinite(values).all():
                raise NotFiniteError(
                    f"tensor {name} of {tensor.file} holds NaN or Inf: no model can be made of it."
                )
            yield values
