"""The k-th largest magnitude without sorting, in passes over stretches.

A sample of every `STRIDE`-th element says between which two magnitudes the k-th lies almost surely
(Floyd and Rivest 1975, "Expected time bounds for selection"). One pass counts what is above them and
collects the few between; of the many that may equal one of them (differences of 16-bit numbers take few
values) only the number. Where the sample misled, another pass looks on the right side of them: the
answer is exact whatever the values. NaN counts as larger than everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from evomerge.merging.kernels.chunks import Stretches
from evomerge.merging.kernels.fused_merge import Voters
from evomerge.merging.kernels.inner_loops import floats, sampled, split, splits

#: One element of so many is in the sample at least: a prime, which no row length follows. Of large
#: tensors fewer are: a sample need not have more than SAMPLE.
STRIDE, SAMPLE = 31, 1 << 15
#: Standard deviations of the sample's rank on either side of the k-th.
MARGIN = 3.0

#: Of fewer elements the k-th is looked for among all.
SMALL = 1 << 14

#: (cut, x) → float32 [voters, …]: what magnitudes are taken of, element by element.
View = Callable[[slice, torch.Tensor], Sequence[torch.Tensor] | torch.Tensor]
_Bracket = tuple[float, float]


def kth_magnitudes(work: Stretches, ks: Sequence[int], view: View) -> list[float]:
    """The k-th largest |element| (k from 1) of each voter; two passes for all of them."""
    if work.size < SMALL:
        return [_largest(v, k) for v, k in zip(_sampled(work, view, 1), ks, strict=True)]
    sample = _sampled(work, view, max(STRIDE, work.size // SAMPLE | 1))
    brackets = [_bracket(values, k, work.size) for values, k in zip(sample, ks, strict=True)]
    return _between(work, list(ks), view, brackets)


def _sampled(work: Stretches, view: View, stride: int) -> list[NDArray[np.float32]]:
    """Magnitudes of every stride-th element of each stretch of each voter."""

    def sample(cut: slice) -> Sequence[NDArray[np.float32]]:
        if isinstance(view, Voters) and work.in_memory:
            return list(sampled(work.stored(cut), floats(view.factors or ()), view.layers, stride))
        return [v.reshape(-1).abs().cpu().numpy() for v in view(cut, work.some(cut, stride))]

    parts = zip(*work.pool.map(sample, work.cuts), strict=True)
    return [np.concatenate(part) for part in parts]


def _bracket(sample: NDArray[np.float32], k: int, size: int) -> _Bracket:
    """Two magnitudes that have the k-th largest of `size` between them, almost surely."""
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
    """Exact: passes until the k-th of every voter is among what was collected."""
    found: list[float | None] = [None] * len(ks)
    while None in found:
        open_ = [i for i, value in enumerate(found) if value is None]
        looked = work.pool.map(lambda cut, o=open_: _look(work, view, cut, o, brackets), work.cuts)
        for i, parts in zip(open_, zip(*looked, strict=True), strict=True):
            counts = sum((part[0] for part in parts), np.zeros(4, np.int64))
            between = np.concatenate([part[1] for part in parts])
            found[i], brackets[i] = _placed(ks[i], counts, between, brackets[i])
    return [value for value in found if value is not None]


def _look(
    work: Stretches, view: View, cut: slice, open_: list[int], brackets: Sequence[_Bracket]
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """What `split` tells of a stretch of those voters that are looked for still."""
    bounds = [brackets[i] for i in open_]
    if isinstance(view, Voters) and work.in_memory:
        layers = [view.layers[i] for i in open_]
        return splits(work.stored(cut), floats(view.factors or ()), layers, bounds)
    voters = view(cut, work.at(cut))
    return [split(voters[i], *pair) for i, pair in zip(open_, bounds, strict=True)]


def _placed(
    k: int, counts: NDArray[np.int64], between: NDArray[np.float32], bracket: _Bracket
) -> tuple[float | None, _Bracket]:
    """The k-th, or where to look next. Many elements may equal an end of the bracket."""
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
    """The k-th largest of them, which are reordered; infinity where that is NaN."""
    place = magnitudes.size - k
    magnitudes.partition(place)
    value = float(magnitudes[place])
    return math.inf if math.isnan(value) else value
