"""Figures of a measurement, and how they follow from what was observed. Pure.

Models are compared by `studies/paired_bits.py`, on documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evaluation.measures.bootstrap import Counts
from phases.measure.events import MeasureState, Role
from runs.event_types import Figure
from studies.observing import Observe, Observed
from studies.paired_bits import draws, figure, mean, rates, resampled

MEASURE = "rolling-bits-per-byte@1"
#: With fewer documents than this in a domain, a note says that intervals are rough.
FEW = 20

#: Figure → what it is, in words.
FIGURES = {
    "bits_per_byte": "bits per byte of the model, the mean over domains",
    "retention": "bits per byte of the best model it is compared with, over the model's own",
    "regression": "the largest rise of bits per byte in any domain, as a share, over the worst there "
    "of the models it is compared with",
    "cumulative": "bits per byte of the best model that the pipeline began with, over the model's own",
    "bytes": "bytes of the model's tensors",
    "size": "bytes of the model's tensors, over those of the largest model it is compared with",
}


def observations(state: MeasureState) -> list[Observe]:
    """Return everything that is measured."""
    on = state.submitted.config.slice
    return [Observe(source.recipe_id, MEASURE, on) for source in state.started.sources]


def found(state: MeasureState) -> dict[str, Observed]:
    """Return recipe id → what was observed, of the models that are measured."""
    told = {task.recipe_id: state.answers.get(task.key) for task in observations(state)}
    return {id_: event for id_, event in told.items() if isinstance(event, Observed)}


def best(state: MeasureState, role: Role) -> str | None:
    """Return the recipe id of the best model of a role; None if the role has none."""
    seen = found(state)
    return min(state.started.roles.get(role, ()), key=lambda id_: mean(seen[id_]), default=None)


def figures(state: MeasureState) -> dict[str, Figure]:
    """Return the figures of a measurement whose models are all measured.

    Without models to compare with there is no `retention`, `regression` and `size`, and without those
    of a pipeline's beginning no `cumulative`. Sizes have no interval.
    """
    (id_,) = state.started.roles["model"]
    seen, drawn = found(state), _drawn(state)
    count = sum(state.started.documents.values())
    own, mine = mean(seen[id_]), resampled(seen[id_], drawn)
    told = {"bits_per_byte": figure(own, mine, count)}
    rivals: dict[str, Role] = {"retention": "against", "cumulative": "first"}
    for name, role in rivals.items():
        if (rival := best(state, role)) is not None:
            theirs = resampled(seen[rival], drawn)
            told[name] = figure(mean(seen[rival]) / own, theirs / mine, count)
    if others := state.started.roles.get("against", ()):
        told["regression"] = _regression(seen[id_], [seen[o] for o in others], drawn, count)
    return told | _sizes(state, id_)


def _sizes(state: MeasureState, id_: str) -> dict[str, Figure]:
    """Return the figures of the model's size."""
    known = state.started.bytes
    told = {"bytes": Figure(value=known[id_])}
    if others := [known[one] for one in state.started.roles.get("against", ())]:
        told["size"] = Figure(value=known[id_] / max(others))
    return told


def _drawn(state: MeasureState) -> dict[str, Counts]:
    """Return domain → how often each document is in each resample."""
    return draws(state.started.documents, "measure", state.submitted.config.seed)


def _regression(
    own: Observed, others: Sequence[Observed], drawn: Mapping[str, Counts], count: int
) -> Figure:
    """Return the largest rise in any domain over the worst of the other models there."""
    mine, theirs = rates(own, drawn), [rates(other, drawn) for other in others]
    rises = [mine[d] / np.max([one[d] for one in theirs], axis=0) - 1 for d in drawn]
    point = max(own.values[d] / max(other.values[d] for other in others) - 1 for d in drawn)
    return figure(point, np.max(rises, axis=0), count)


def notes(documents: Mapping[str, int]) -> list[str]:
    """Return a note for each domain with few documents."""
    return [
        f"domain {domain} has {count} documents: intervals are rough."
        for domain, count in documents.items()
        if count < FEW
    ]
