"""The k-th largest magnitude without sorting.

The upper halves of the float32 bit patterns, as 16-bit integers without the sign, are ordered like
the magnitudes themselves. Selecting among them (`numpy.partition`, introselect) finds the stretch of
values that the k-th falls into, some percent of all; only those are looked at in full.
"""

from __future__ import annotations

import threading

import numpy as np
import torch

_MAGNITUDE = np.uint16(0x7FFF)


class _Scratch(threading.local):
    """Reused memory: fresh pages cost more than the selection itself."""

    def __init__(self) -> None:
        self.halves = np.empty(0, np.uint16)
        self.work = np.empty(0, np.uint16)

    def take(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Two [count] arrays of uint16, whatever is in them."""
        if len(self.work) < count:
            self.halves, self.work = np.empty(count, np.uint16), np.empty(count, np.uint16)
        return self.halves[:count], self.work[:count]


_scratch = _Scratch()


def kth_magnitude(tensor: torch.Tensor, k: int) -> float:
    """The k-th largest |element| (k from 1) of a contiguous float32 tensor."""
    values = tensor.reshape(-1).numpy()
    count = values.size
    halves, work = _scratch.take(count)
    np.bitwise_and(values.view("<u2")[1::2], _MAGNITUDE, out=halves)
    work[:] = halves
    work.partition(count - k)
    stretch = work[count - k]
    above = int(np.count_nonzero(work[count - k :] > stretch))
    inside = np.abs(values[np.flatnonzero(halves == stretch)])
    place = len(inside) - (k - above)
    inside.partition(place)
    return float(inside[place])
