"""Hard tokens: those that the given model predicts worst on held-out text. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phases.quietstar.events import HardTokensFrozen


def worst(
    losses: Sequence[NDArray[np.float64]], share: float
) -> tuple[tuple[tuple[int, ...], ...], float]:
    """Return the places of the hard tokens of each document, and the least loss among them.

    `losses` are −log p of each document's tokens in nats. Of equal losses, the earlier token is hard.
    """
    flat = np.concatenate(losses)
    order = np.argsort(-flat, kind="stable")[: count(share, len(flat))]
    chosen = np.zeros(len(flat), bool)
    chosen[order] = True
    parts = np.split(chosen, np.cumsum([len(document) for document in losses])[:-1])
    places = tuple(tuple(int(n) for n in np.flatnonzero(part)) for part in parts)
    return places, float(flat[order[-1]])


def count(share: float, tokens: int) -> int:
    """Return the number of hard ones among `tokens`."""
    return math.ceil(share * tokens)


def wrong(event: HardTokensFrozen, share: float) -> str | None:
    """Return why an event cannot be the hard tokens of a slice; None if it can. For the audit."""
    if not set(event.tokens) == set(event.sizes) == set(event.thresholds):
        return "its parts are not of the same domains"
    for domain, documents in event.tokens.items():
        sizes = event.sizes[domain]
        if len(documents) != len(sizes):
            return "it has another number of documents than of sizes"
        for places, size in zip(documents, sizes, strict=True):
            if list(places) != sorted(set(places)) or any(place >= size for place in places):
                return "a hard token has no place in its document"
        if sum(map(len, documents)) != count(share, sum(sizes)):
            return f"the hard tokens of {domain} are another share than was asked for"
    return None
