"""Sequences that models are measured on: windows of text, and answers after the prompts of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.answers import Encoded
from evaluation.backends.backend import Evaluator
from evaluation.data.packing import Ids, Packed


@dataclass(frozen=True)
class Held:
    """Sequences of a domain, and what of each is predicted."""

    windows: Sequence[Ids]
    #: Predictions that are left out at the beginning: those of the tokens of a prompt.
    starts: Sequence[int]
    #: UTF-8 bytes of what is predicted.
    bytes: Sequence[int]

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.windows)

    def part(self, first: int | None, last: int | None) -> Held:
        """Return the sequences from `first` to before `last`."""
        own = slice(first, last)
        return Held(self.windows[own], self.starts[own], self.bytes[own])


def of_text(packed: Packed) -> Held:
    """Return windows of text, of which all but the first token is predicted."""
    return Held(packed.windows, [0] * len(packed.windows), packed.bytes)


def of_answers(items: Sequence[Encoded], texts: Sequence[str]) -> Held:
    """Return tasks of which the answers are predicted, with the end; `texts` are the answers.

    An answer's bytes are those of its text and of the blank before it.
    """
    return Held(
        [np.asarray((*one.prompt, *one.answer), np.int64) for one in items],
        [len(one.prompt) - 1 for one in items],
        [len(text.encode()) + 1 for text in texts],
    )


def sums(model: Evaluator, held: Held) -> list[float]:
    """Return Σ −log p of what is predicted of each sequence, in nats, float64."""
    found = zip(model.losses(held.windows), held.starts, strict=True)
    return [float(losses[start:].astype(np.float64).sum()) for (losses, _), start in found]


def joined(parts: Sequence[Held]) -> Held:
    """Return the sequences of several one after the other."""
    return Held(
        [window for part in parts for window in part.windows],
        [start for part in parts for start in part.starts],
        [size for part in parts for size in part.bytes],
    )
