"""Paired bootstrap: the interval of a difference that two models show on the same items.

Efron & Tibshirani 1993. Items are resampled with replacement, the same resample for both models. The
interval is the middle 95 % of the differences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agent_forge.runs import keys
from agent_forge.runs.event_types import EventPart
from agent_forge.runs.panels.panels import Verdict, verdict

RESAMPLES = 2000

#: How often each item is in each resample, [resamples, items].
Counts = NDArray[np.float64]


class Comparison(EventPart):
    """The first model's figure minus the second's, and the difference's 95 % interval."""

    difference: float
    low: float
    high: float

    def verdict(self, rounding: float) -> Verdict:
        """Return "better", "level" or "worse": the first model beside the second, by the interval."""
        return verdict(self.low, self.high, rounding)

    def moved(self, by: float) -> Comparison:
        """Return the Comparison shifted by an exactly known difference."""
        return Comparison(difference=self.difference + by, low=self.low + by, high=self.high + by)


def draws(size: int, *key: str | int) -> Counts:
    """Return [RESAMPLES, size] counts, drawn by key: how often each item is in each resample."""
    counts = keys.generator(*key).multinomial(size, [1 / size] * size, RESAMPLES) if size else []
    return np.asarray(counts, np.float64).reshape(RESAMPLES, size)


def ratio(counts: Counts, above: Sequence[float], below: Sequence[float]) -> Counts:
    """Return Σ above / Σ below in every resample: [resamples] float64."""
    return (counts @ np.asarray(above, np.float64)) / (counts @ np.asarray(below, np.float64))


def interval(differences: Counts, point: float) -> Comparison:
    """Return a Comparison: `point`, with the middle 95 % of the resamples' differences."""
    low, high = np.quantile(differences, [0.025, 0.975])
    return Comparison(difference=point, low=float(low), high=float(high))


def rates(
    a: Sequence[float], b: Sequence[float], sizes: Sequence[float], *key: str | int
) -> Comparison:
    """Return the Comparison of Σ a / Σ sizes with Σ b / Σ sizes, such as two models' bits per byte."""
    counts, once = draws(len(sizes), *key), np.ones((1, len(sizes)))
    differences = ratio(counts, a, sizes) - ratio(counts, b, sizes)
    point = ratio(once, a, sizes) - ratio(once, b, sizes)
    return interval(differences, float(point[0]))
