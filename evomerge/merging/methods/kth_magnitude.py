"""The k-th largest magnitude without sorting, in passes over stretches.

A sample of every `STRIDE`-th element gives two magnitudes that almost surely have the k-th between
them (Floyd and Rivest 1975, "Expected time bounds for selection"). One pass counts the elements
above them and collects the few between. Many elements may equal one of the two, because differences
of 16-bit numbers take few values; of these only the number is kept. If the sample misled, another
pass looks on the right side of the two, so the answer is exact for any values. NaN counts as larger
than everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from agent_forge.evomerge.merging.kernels.chunks import Stretches
from agent_forge.evomerge.merging.kernels.fused_merge import Voters
from agent_forge.evomerge.merging.kernels.inner_loops import floats, sampled, split, splits

#: The sample has one element of every STRIDE, a prime, which no usual row length is a multiple of.
#: Of large tensors the sample has fewer: it need not have more than about SAMPLE elements.
STRIDE, SAMPLE = 31, 1 << 15
#: Standard deviations of the sample's rank on either side of the k-th.
MARGIN = 3.0

#: In a tensor with fewer elements the k-th is looked for among all of them.
SMALL = 1 << 14

#: (cut, x) → float32 [voters, …]: the values whose magnitudes are taken, element by element.
View = Callable[[slice, torch.Tensor], Sequence[torch.Tensor] | torch.Tensor]
_Bracket = tuple[float, float]


def reference(values: NDArray[np.float32], k: int) -> float:
    """Return the k-th largest |element| by sorting all of them."""
    return float(np.sort(np.abs(values), axis=None)[::-1][k - 1])


def kth_magnitudes(work: Stretches, ks: Sequence[int], view: View) -> list[float]:
    """Return the k-th largest |element| (k from 1) of each voter, in two passes for all of them."""
    if work.size < SMALL:
        return [_largest(v, k) for v, k in zip(_sampled(work, view, 1), ks, strict=True)]
    sample = _sampled(work, view, max(STRIDE, work.size // SAMPLE | 1))
    brackets = [_bracket(values, k, work.size) for values, k in zip(sample, ks, strict=True)]
    return _between(work, list(ks), view, brackets)


def _sampled(work: Stretches, view: View, stride: int) -> list[NDArray[np.float32]]:
    """Return, for each voter, the magnitudes of every stride-th element of each stretch."""

    def sample(cut: slice) -> Sequence[NDArray[np.float32]]:
        if isinstance(view, Voters) and work.in_memory:
            return list(sampled(work.stored(cut), floats(view.factors or ()), view.layers, stride))
        return [v.reshape(-1).abs().cpu().numpy() for v in view(cut, work.some(cut, stride))]

    parts = zip(*work.pool.map(sample, work.cuts), strict=True)
    return [np.concatenate(part) for part in parts]


def _bracket(sample: NDArray[np.float32], k: int, size: int) -> _Bracket:
    """Return (low, high): magnitudes that almost surely have the k-th largest of `size` between."""
    share = k / size
    rank = (1.0 - share) * len(sample)
    margin = MARGIN * math.sqrt(share * (1.0 - share) * len(sample)) + 1.0
    low, high = math.floor(rank - margin), math.ceil(rank + margin)
    np.copyto(sample, np.inf, where=np.isnan(sample))
    sample.partition([place for place in (low, high) if 0 <= place < len(sample)])
    return (
        float(sample[low]) if low >= 0 else 0.0,
        float(sample[high]) if high < len(sample) else math.inf,
    )


def _between(work: Stretches, ks: list[int], view: View, brackets: list[_Bracket]) -> list[float]:
    """Return the k-th magnitude of every voter, from passes that narrow the brackets: exact."""
    magnitudes: list[float | None] = [None] * len(ks)
    while None in magnitudes:
        open_ = [i for i, value in enumerate(magnitudes) if value is None]
        looked = work.pool.map(lambda cut, o=open_: _look(work, view, cut, o, brackets), work.cuts)
        for i, parts in zip(open_, zip(*looked, strict=True), strict=True):
            counts = sum((part[0] for part in parts), np.zeros(4, np.int64))
            between = np.concatenate([part[1] for part in parts])
            magnitudes[i], brackets[i] = _placed(ks[i], counts, between, brackets[i])
    return [value for value in magnitudes if value is not None]


def _look(
    work: Stretches, view: View, cut: slice, open_: list[int], brackets: Sequence[_Bracket]
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Return (counts, magnitudes between) of a stretch for each voter that is still open."""
    bounds = [brackets[i] for i in open_]
    if isinstance(view, Voters) and work.in_memory:
        layers = [view.layers[i] for i in open_]
        return splits(work.stored(cut), floats(view.factors or ()), layers, bounds)
    voters = view(cut, work.at(cut))
    return [split(voters[i], *pair) for i, pair in zip(open_, bounds, strict=True)]


def _placed(
    k: int, counts: NDArray[np.int64], between: NDArray[np.float32], bracket: _Bracket
) -> tuple[float | None, _Bracket]:
    """Return (the k-th magnitude or None, the bracket to look in next).

    Many elements may equal an end of the bracket.
    """
    low, high = bracket
    above, from_high, above_low, from_low = map(int, counts)
    if k <= above:
        return (math.inf if high == math.inf else None), (high, math.inf)  # only NaN is above it
    if high == math.inf and low == math.inf:
        return None, (0.0, math.inf)
    if k <= from_high:
        return high, bracket
    if k <= above_low:
        return _largest(between, k - from_high), bracket
    if k <= from_low:
        return low, bracket
    return None, (0.0, low)


def _largest(magnitudes: NDArray[np.float32], k: int) -> float:
    """Return the k-th largest of the magnitudes, which are reordered; infinity if that is NaN."""
    place = magnitudes.size - k
    magnitudes.partition(place)
    value = float(magnitudes[place])
    return math.inf if math.isnan(value) else value
