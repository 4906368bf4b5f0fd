"""Figures of a measurement, and how they follow from what was observed. Pure.

Models are compared by `studies/paired_bits.py`, on documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evaluation.measures.bootstrap import Counts
from phases.measure.events import MeasureState
from runs.event_types import Figure
from studies import comparison
from studies.observing import Observe, Observed
from studies.paired_bits import draws, figure, mean, rates, resampled

MEASURE = "rolling-bits-per-byte@1"
#: Figure → what it is, in words.
FIGURES = {
    "bits_per_byte": "bits per byte: those of the measured model, the mean over domains",
    "retention": "quality kept of the best input: bits per byte of the best model that it is compared "
    "with, divided by those of the measured model",
    "regression": "loss in the worst domain: rise of bits per byte over the worst input, in the domain "
    "where this rise is largest; below zero it is better than its worst input everywhere",
    "cumulative": "quality kept since the beginning: bits per byte of the best model that the pipeline "
    "began with, divided by those of the measured model",
    "bytes": "size unpacked: bytes of the measured model's tensors, even if its file is packed",
    "size": "unpacked size beside the largest input: bytes of the measured model's tensors, divided by "
    "those of the largest model that it is compared with",
}
#: Figures that are shares, shown beside the result.
SHARES = ("retention", "cumulative", "regression", "size")


def observations(state: MeasureState) -> dict[str, Observe]:
    """Return recipe id → its measurement, of all that is measured."""
    on = state.submitted.config.slice
    return {
        source.recipe_id: Observe(source.recipe_id, MEASURE, on) for source in state.started.sources
    }


def observed(state: MeasureState) -> dict[str, Observed]:
    """Return recipe id → what was observed, of the models that are measured."""
    return comparison.observed(state, observations(state)) if state.started else {}


def figures(state: MeasureState) -> dict[str, Figure]:
    """Return the figures of a measurement whose models are all measured.

    Without models to compare with there is no `retention`, `regression` and `size`, and without those
    of a pipeline's beginning no `cumulative`. Sizes have no interval.
    """
    started, events = state.started, observed(state)
    (id_,) = started.roles["model"]
    baselines, first = (started.roles.get(role, ()) for role in ("against", "first"))
    resamples = draws(started.documents, "measure", state.submitted.config.seed)
    count, sizes = sum(started.documents.values()), started.bytes
    bits, drawn = mean(events[id_]), resampled(events[id_], resamples)
    values = {"bits_per_byte": figure(bits, drawn, count)}
    for name, rivals in (("retention", baselines), ("cumulative", first)):
        if rivals:
            best = min((events[rival] for rival in rivals), key=mean)
            share = resampled(best, resamples) / drawn
            values[name] = figure(mean(best) / bits, share, count)
    if baselines:
        rivals = [events[other] for other in baselines]
        values["regression"] = _regression(events[id_], rivals, resamples, count)
    values["bytes"] = Figure(value=sizes[id_])
    if baselines:
        values["size"] = Figure(value=sizes[id_] / max(sizes[other] for other in baselines))
    return values


def _regression(
    event: Observed, rivals: Sequence[Observed], drawn: Mapping[str, Counts], count: int
) -> Figure:
    """Return the largest rise in any domain over the worst of the other models there."""
    own_rates, rival_rates = rates(event, drawn), [rates(other, drawn) for other in rivals]
    rises = [own_rates[d] / np.max([rival[d] for rival in rival_rates], axis=0) - 1 for d in drawn]
    point = max(event.values[d] / max(other.values[d] for other in rivals) - 1 for d in drawn)
    return figure(point, np.max(rises, axis=0), count)
