"""Documents, and the slices that they fall into."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from agent_forge.runs.errors import DataError

Slice = Literal["train", "search", "selection", "test"]
SLICES: tuple[Slice, ...] = get_args(Slice)

#: Shares for a corpus that models are trained on: most of it is training text.
TRAINING_SHARES: Mapping[Slice, float] = {
    "train": 0.80,
    "search": 0.07,
    "selection": 0.06,
    "test": 0.07,
}

#: Shares for data that only measures. Its train slice is calibration text (layer choice).
MEASURING_SHARES: Mapping[Slice, float] = {
    "train": 0.10,
    "search": 0.40,
    "selection": 0.25,
    "test": 0.25,
}


@dataclass(frozen=True)
class Document:
    """Text of one file, with a name that is stable and unique in its domain."""

    name: str
    domain: str
    text: str

    def slice(self, shares: Mapping[Slice, float] = TRAINING_SHARES) -> Slice:
        """Return the slice that this document belongs to; see `slice_of`."""
        return slice_of(f"{self.domain}/{self.name}", shares)


def check_split(domain: str, split: Mapping[Slice, Sequence[Document]], remedy: str) -> None:
    """Raise DataError if a domain has no text in a slice: nothing could be trained or measured there.

    `remedy` ends the message: a sentence that says how to get more text.
    """
    lacking = [slice_ for slice_ in SLICES if not split.get(slice_)]
    if not lacking:
        return
    counts = ", ".join(f"{len(split.get(slice_, ()))} {slice_}" for slice_ in SLICES)
    texts = [document for documents in split.values() for document in documents]
    raise DataError(
        f"domain {domain} has no text in the slice{'s' if len(lacking) > 1 else ''} "
        f"{', '.join(lacking)}: {len(texts)} texts ({counts}), "
        f"{sum(len(document.text) for document in texts):,} characters in all. {remedy}"
    )


def slice_of(name: str, shares: Mapping[Slice, float]) -> Slice:
    """Return the slice of a name: a point in [0, 1) from SHA-256 of the name, laid on the shares.

    Adding or removing other names never moves a name.
    """
    point = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
    edge = 0.0
    for slice_ in SLICES:
        edge += shares[slice_]
        if point < edge:
            return slice_
    return SLICES[-1]
