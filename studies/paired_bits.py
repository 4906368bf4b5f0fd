"""Bits per byte of observed models, and figures with intervals by resampling them together. No torch.

A model's bits per byte are the mean over domains, so that a long domain counts as much as a short one.
Intervals are the middle 95 % of a paired bootstrap: items are resampled within each domain, the same
for all models (`evaluation/measures/bootstrap.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from evaluation.measures import bootstrap
from evaluation.measures.bootstrap import Counts
from runs.event_types import Figure, Measurement
from studies.observing import Observed

#: Measure of one model → what it measures, in words.
WORDS = {
    "bits-per-byte@1": "bits per byte",
    "int8-bits-per-byte@1": "bits per byte, int8 activations",
    "rolling-bits-per-byte@1": "bits per byte",
}


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


def measurements(
    answers: Iterable[object], recipe_ids: Collection[str], *key: str | int
) -> list[Measurement]:
    """Return the bits per byte that were observed of a model with one of the ids, with intervals.

    Each observation gives the mean over domains, if there are several, and every domain's. Measures
    that are of more than one model, such as losses along a line, are left out.
    """
    readings = []
    for event in answers:
        if isinstance(event, Observed) and event.recipe_id in recipe_ids and event.measure in WORDS:
            readings += _measured(event, *key)
    return readings


def _measured(event: Observed, *key: str | int) -> Iterator[Measurement]:
    """Yield the measurements of an observation."""
    name, sizes = (
        WORDS[event.measure],
        {domain: len(items) for domain, items in event.items.items()},
    )
    drawn = draws(sizes, *key, event.on)
    if len(sizes) > 1:
        whole = figure(mean(event), resampled(event, drawn), sum(sizes.values()))
        yield Measurement(name=name, slice=event.on, figure=whole)
    for domain, rate in rates(event, drawn).items():
        domain_figure = figure(event.values[domain], rate, sizes[domain])
        yield Measurement(name=name, domain=domain, slice=event.on, figure=domain_figure)


def figure(point: float, resamples: Counts, n: int) -> Figure:
    """Return a figure with the interval of what was `resamples` in the resamples."""
    low, high = np.quantile(resamples, [0.025, 0.975])
    return Figure(value=point, low=float(low), high=float(high), n=n)
