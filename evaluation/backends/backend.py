"""Interfaces of models to evaluate, in this process or on a server, and batches of sequences.

Sequences of token ids go in; log-likelihoods of every token, and replies, come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from agent_forge.evaluation.data.packing import Ids, PackedProblem
from agent_forge.weights.folders.vocabularies import Tokenizer

#: Tokens of one forward pass, fewer if the vocabulary is large: logits stay under 64 MB.
BATCH_TOKENS = 4096
LOGIT_ELEMENTS = 1 << 24

#: −log p of every token but the first (float32, nats), and True for each that was the most likely
#: token; both [length − 1].
Losses = tuple[NDArray[np.float32], NDArray[np.bool_]]


class Evaluator(Protocol):
    """Interface of a model that an evaluation uses."""

    @property
    def positions(self) -> int | None:
        """The longest sequence that the model takes, in tokens; None if it is not known."""

    def losses(self, sequences: Sequence[Ids]) -> list[Losses]:
        """Return one `Losses` pair per sequence; no sequence is shorter than two tokens."""
        ...

    def continuations(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """Return per pair −log p of its continuation's tokens, in nats; no part of a pair is empty."""
        ...

    def replies(self, problems: Sequence[PackedProblem], tokenizer: Tokenizer) -> list[str]:
        """Return per problem a greedy reply (always the likeliest token), ended as it says."""
        ...


def rows_per_batch(length: int, vocabulary: int, tokens: int | None = None) -> int:
    """Return the number, at least 1, of sequences of `length` tokens in a forward pass of `tokens`.

    If `tokens` is None: `BATCH_TOKENS`, fewer if the vocabulary is large.
    """
    most = min(BATCH_TOKENS, LOGIT_ELEMENTS // vocabulary) if tokens is None else tokens
    return max(1, most // length)


def batches(
    sequences: Sequence[Ids], rows: Callable[[int], int], pad: int = 1, limit: int | None = None
) -> Iterator[tuple[int, list[int]]]:
    """Yield (padded length, indices of sequences): batches of at most `rows(length)` sequences.

    Batches depend on lengths and order alone, so the same draw gives the same shapes and, within a
    profile, the same bits. No length is padded beyond `limit`.
    """
    groups: dict[int, list[int]] = {}
    for place, sequence in enumerate(sequences):
        padded = -(-len(sequence) // pad) * pad
        groups.setdefault(max(len(sequence), min(padded, limit or padded)), []).append(place)
    for length in sorted(groups, reverse=True):
        same = groups[length]
        for start in range(0, len(same), rows(length)):
            yield length, same[start : start + rows(length)]


#: What a forward pass costs beside its tokens, in tokens, in `mixed_batches`.
PASS = 128


def mixed_batches(
    sequences: Sequence[Ids], rows: Callable[[int], int], pad: int = 1, limit: int | None = None
) -> Iterator[tuple[int, list[int]]]:
    """Yield (padded length, indices of sequences) as `batches` does, of sequences of several lengths.

    They are cut, in order of length, so that padded tokens, and `PASS` for each batch, are fewest.
    """
    order = sorted(range(len(sequences)), key=lambda place: -len(sequences[place]))
    lengths = [len(sequences[place]) for place in order]
    widths = [max(n, min(-(-n // pad) * pad, limit or n + pad)) for n in lengths]
    #: Number of sequences → (tokens of the cheapest batches of the first ones, where the last begins).
    cheapest = [(0, 0)]
    for end in range(1, len(order) + 1):
        fitting = takewhile(lambda at, end=end: end - at <= rows(widths[at]), range(end - 2, -1, -1))
        ways = ((cheapest[at][0] + PASS + (end - at) * widths[at], at) for at in (end - 1, *fitting))
        cheapest.append(min(ways))
    cuts, end = [], len(order)
    while end:
        cuts.append((cheapest[end][1], end))
        end = cheapest[end][1]
    for begin, end in reversed(cuts):
        yield widths[begin], order[begin:end]
