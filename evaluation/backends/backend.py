"""Who measures: a model in this process, or one that a server holds. Sequences of token ids go in;
log-likelihoods of every token, and replies, come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evaluation.data.packing import Ids, Posed

#: Tokens of one forward pass, fewer where the vocabulary is large: logits stay under 64 MB.
BATCH_TOKENS = 4096
LOGIT_ELEMENTS = 1 << 24

#: −log p of every token but the first (float32, nats), and whether it was the most likely one;
#: both [length − 1].
Losses = tuple[NDArray[np.float32], NDArray[np.bool_]]


class Evaluator(Protocol):
    """What an evaluation asks of a model."""

    @property
    def positions(self) -> int | None:
        """The longest sequence that it takes; None where that is not known."""

    def losses(self, sequences: Sequence[Ids]) -> list[Losses]:
        """The losses of every sequence, none shorter than two tokens."""
        ...

    def continuations(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """−log p of every token of what follows each prompt; neither is empty."""
        ...

    def replies(self, problems: Sequence[Posed], tokenizer: Any) -> list[str]:
        """The most likely token after the other, ended as each problem says."""
        ...


class LocalModel(Protocol):
    """What reading continuations and writing replies ask of a model in this process."""

    module: Any
    config: Any
    device: Any
    batch_tokens: int | None

    @property
    def positions(self) -> int | None:
        """The longest sequence that the architecture takes; None if it does not say."""
        ...

    def rows(self, length: int) -> int:
        """Return how many sequences of `length` tokens go into one forward pass."""
        ...

    def losses(self, sequences: Sequence[Ids], pad: int = 1) -> list[Losses]:
        """Return the losses of every sequence, with lengths rounded up to a multiple of `pad`."""
        ...

    def continued(self, ids: Any, mask: Any, limit: int, until: Any) -> Any:
        """Return the most likely next tokens, [batch, at most `limit`] int64 on the CPU."""
        ...


def rows_per_batch(length: int, vocabulary: int, tokens: int | None = None) -> int:
    """How many sequences of `length` tokens go into one forward pass of `tokens`.

    None: `BATCH_TOKENS`, fewer where the vocabulary is large.
    """
    most = min(BATCH_TOKENS, LOGIT_ELEMENTS // vocabulary) if tokens is None else tokens
    return max(1, most // length)


def batches(
    sequences: Sequence[Ids], rows: Callable[[int], int], pad: int = 1, limit: int | None = None
) -> Iterator[tuple[int, list[int]]]:
    """(length, places): sequences of one padded length, in order, in batches of `rows(length)`.

    Cut from lengths and order alone, so the same draw gives the same shapes and, within a profile,
    the same bits. No length is padded beyond `limit`.
    """
    groups: dict[int, list[int]] = {}
    for place, sequence in enumerate(sequences):
        padded = -(-len(sequence) // pad) * pad
        groups.setdefault(max(len(sequence), min(padded, limit or padded)), []).append(place)
    for length in sorted(groups, reverse=True):
        same = groups[length]
        for start in range(0, len(same), rows(length)):
            yield length, same[start : start + rows(length)]
