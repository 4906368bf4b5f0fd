"""Bits per byte of observed models, and figures with intervals by resampling them together. No torch.

A model's bits per byte are the mean over domains, so that a long domain counts as much as a short one.
Intervals are the middle 95 % of a paired bootstrap: items are resampled within each domain, the same
for all models (`evaluation/bootstrap.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from evaluation import bootstrap
from evaluation.bootstrap import Counts
from evaluation.observing import Observed
from runs.event_types import Figure


def mean(event: Observed) -> float:
    """Return a model's bits per byte, the mean over domains."""
    return math.fsum(event.values.values()) / len(event.values)


def draws(items: Mapping[str, int], *key: str | int) -> dict[str, Counts]:
    """Return domain → how often each of its items is in each resample; `items`: their numbers."""
    return {domain: bootstrap.draws(items[domain], *key, domain) for domain in sorted(items)}


def rates(event: Observed, drawn: Mapping[str, Counts]) -> dict[str, Counts]:
    """Return domain → a model's bits per byte in each resample, [resamples]."""
    return {
        domain: bootstrap.ratio(counts, event.items[domain], event.sizes[domain]) / math.log(2)
        for domain, counts in drawn.items()
    }


def resampled(event: Observed, drawn: Mapping[str, Counts]) -> Counts:
    """Return a model's bits per byte in each resample, the mean over domains, [resamples]."""
    return np.mean([*rates(event, drawn).values()], axis=0)


def figure(point: float, found: Counts, n: int) -> Figure:
    """Return a figure with the interval of what was `found` in the resamples."""
    low, high = np.quantile(found, [0.025, 0.975])
    return Figure(value=point, low=float(low), high=float(high), n=n)
