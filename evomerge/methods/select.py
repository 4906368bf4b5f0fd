"""The k-th largest magnitude without sorting.

A sample of every `STRIDE`-th element says between which two magnitudes the k-th lies almost surely
(Floyd and Rivest 1975, "Expected time bounds for selection"). One pass counts what is above them and
collects the few between. Where the sample misled, all elements are selected from: the answer is
exact whatever the values.
"""

from __future__ import annotations

import math
import threading

import numpy as np
import torch
from numpy.typing import NDArray

#: One element of so many is in the sample: a prime, which no row length follows.
STRIDE = 61
#: Standard deviations of the sample's rank on either side of the k-th.
MARGIN = 5.0
#: Elements looked at at a time: few enough for the processor's cache.
CHUNK = 1 << 18
#: Fewer elements than this are selected from directly.
SMALL = 1 << 13


class _Scratch(threading.local):
    """Reused memory: fresh pages cost more than the selection itself."""

    def __init__(self) -> None:
        self.magnitudes = np.empty(CHUNK, np.float32)
        self.above = np.empty(CHUNK, np.bool_)
        self.between = np.empty(CHUNK, np.bool_)


_scratch = _Scratch()


def kth_magnitude(tensor: torch.Tensor, k: int) -> float:
    """The k-th largest |element| (k from 1) of a contiguous float32 tensor."""
    values = tensor.reshape(-1).numpy()
    if values.size >= SMALL:
        low, high = _bracket(values, k)
        above, between = _split(values, low, high)
        if above < k <= above + len(between):
            return _largest(between, k - above)
    return _largest(np.abs(values), k)


def _bracket(values: NDArray[np.float32], k: int) -> tuple[np.float32, np.float32]:
    """Two magnitudes that have the k-th largest between them, almost surely."""
    sample = np.sort(np.abs(values[::STRIDE]))
    share = k / values.size
    rank = (1.0 - share) * len(sample)
    margin = MARGIN * math.sqrt(share * (1.0 - share) * len(sample)) + 1.0
    low, high = math.floor(rank - margin), math.ceil(rank + margin)
    return (
        sample[low] if low >= 0 else np.float32(0.0),
        sample[high] if high < len(sample) else np.float32(np.inf),
    )


def _split(
    values: NDArray[np.float32], low: np.float32, high: np.float32
) -> tuple[int, NDArray[np.float32]]:
    """How many magnitudes are above `high`, and those in [low, high]."""
    above, between = 0, []
    for start in range(0, values.size, CHUNK):
        part = values[start : start + CHUNK]
        magnitudes = np.abs(part, out=_scratch.magnitudes[: part.size])
        over = np.greater(magnitudes, high, out=_scratch.above[: part.size])
        above += int(np.count_nonzero(over))
        inside = np.greater_equal(magnitudes, low, out=_scratch.between[: part.size])
        np.not_equal(inside, over, out=inside)
        between.append(magnitudes[np.flatnonzero(inside)])
    return above, np.concatenate(between)


def _largest(magnitudes: NDArray[np.float32], k: int) -> float:
    """The k-th largest of them, which are reordered."""
    place = magnitudes.size - k
    magnitudes.partition(place)
    return float(magnitudes[place])
