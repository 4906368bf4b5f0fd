"""State of a titans_mag model between the tokens of a text."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .neural_memory import MemoryState


@dataclass
class BlockState:
    """State of one application of a block between tokens."""

    #: Keys and values of the window, [batch, heads, tokens, size].
    key: torch.Tensor | None = None
    value: torch.Tensor | None = None
    memory: MemoryState | None = None
    #: Last inputs of the convolution, [batch, convolution − 1, channels].
    tail: torch.Tensor | None = None

    def selected(self, rows: torch.Tensor) -> BlockState:
        """Return a copy with these rows of the batch, in this order."""
        key, value, tail = (
            None if tensor is None else tensor[rows] for tensor in (self.key, self.value, self.tail)
        )
        return BlockState(key, value, self.memory and self.memory.selected(rows), tail)


class TitansMagCache:
    """State of a model between tokens: a `BlockState` for each application of each block."""

    is_compileable = False

    def __init__(self, applications: int) -> None:
        """Begin without tokens."""
        self.layers = [BlockState() for _ in range(applications)]
        #: Number of tokens read, padding included; and 1 for real tokens of the window, 0 for padding.
        self.seen = 0
        self.real: torch.Tensor | None = None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of tokens read, padding included."""
        return self.seen

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Replace the state by that of these rows of the batch, in this order."""
        self.layers = [layer.selected(indices) for layer in self.layers]
        self.real = None if self.real is None else self.real[indices]

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Replace the state by that of these rows: the beams that a beam search goes on with."""
        self.batch_select_indices(beam_idx)
