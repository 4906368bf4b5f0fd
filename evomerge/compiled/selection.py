"""What lies between two magnitudes, for the k-th largest (`methods/select.py`)."""

from __future__ import annotations

import numpy as np

from evomerge.compiled.blocks import BLOCK
from evomerge.compiled.compiler import compiled


@compiled
def _grades(v, low, high, grades):
    """How many of four comparisons hold: above or at least either bound. All of them for NaN."""
    for i in range(v.size):
        a = abs(v[i])
        grades[i] = (
            np.uint8(not (a <= high)) + np.uint8(not (a < high))
            + np.uint8(not (a <= low)) + np.uint8(not (a < low))
        )  # fmt: skip


@compiled
def _at_least(grades, least):
    count = np.int32(0)
    for i in range(grades.size):
        count += np.int32(grades[i] >= least)
    return count


@compiled
def _inside(grades):
    for i in range(grades.size):
        grades[i] = np.uint8(grades[i] == 2)


@compiled
def split_block(part, low, high, counts, between, count, grades):
    """Of up to BLOCK elements; how many are in `between` then."""
    eight = grades.view(np.uint64)
    _grades(part, low, high, grades)
    grades[part.size :] = 0
    counts[0] += _at_least(grades, np.uint8(4))
    counts[3] += _at_least(grades, np.uint8(1))
    if low == high:  # two and two comparisons are the same, and nothing is between
        counts[2] += _at_least(grades, np.uint8(4))
        counts[1] += _at_least(grades, np.uint8(1))
        return count
    counts[1] += _at_least(grades, np.uint8(3))
    counts[2] += _at_least(grades, np.uint8(2))
    _inside(grades)
    for group in range(BLOCK // 8):
        if eight[group]:
            for i in range(group * 8, min(group * 8 + 8, part.size)):
                between[count] = abs(part[i])  # no branch: nobody could foresee it
                count += grades[i]
    return count


@compiled
def split(values, low, high, counts, between):
    """See `kernels.split`."""
    count = 0
    flags = np.empty(BLOCK, np.uint8)
    for start in range(0, values.size, BLOCK):
        part = values[start : start + BLOCK]
        count = split_block(part, low, high, counts, between, count, flags)
    return count
