"""Mixtures of settings against single settings of the same model at equal bytes. Pure.

Each single setting has the largest mixture that takes no more bytes beside it. The figure is the
mixture's bits per byte minus the setting's on the selection slice, with the interval of a paired
bootstrap over documents: below zero, the mixture is better. Costs of errors were estimated on the same
documents, and points are chosen by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phases.compression import findings
from phases.compression.events import CompressionState
from phases.compression.findings import SELECTION, Point
from runs.event_types import Figure
from studies.observing import Observed
from studies.paired_bits import draws, figure, mean, resampled


@dataclass(frozen=True)
class Rival:
    """A mixture beside a single setting that takes at least as many bytes."""

    single: Point
    mixture: Point
    #: Bits per byte of the mixture, minus those of the single setting.
    difference: Figure


def rivals(state: CompressionState) -> list[Rival]:
    """Return the pairs of all models that are encoded, those with the fewest bytes first."""
    found = findings.points(state)
    pairs = list(_pairs(found))
    if not pairs:
        return []
    counts = state.started.selection
    drawn = draws(counts, "compression-mixtures", state.submitted.config.seed)
    n = sum(counts.values())
    events = {point.name: _observed(state, point) for pair in pairs for point in pair}
    rates = {name: resampled(event, drawn) for name, event in events.items()}
    return [
        Rival(
            single,
            mixture,
            figure(
                mean(events[mixture.name]) - mean(events[single.name]),
                rates[mixture.name] - rates[single.name],
                n,
            ),
        )
        for single, mixture in pairs
    ]


def _pairs(found: Sequence[Point]) -> Iterator[tuple[Point, Point]]:
    """Yield each single setting but plain ones with its mixture; `found` is in order of bytes."""
    for single in found:
        if single.series in ("plain", "mixture"):
            continue
        smaller = [p for p in found if p.series == "mixture" and _fits(p, single)]
        if smaller:
            yield single, smaller[-1]


def _fits(mixture: Point, single: Point) -> bool:
    """Return True if a mixture is of the same model and takes no more bytes."""
    assert mixture.packed is not None
    assert single.packed is not None
    same = mixture.subject == single.subject
    return same and mixture.packed.bytes <= single.packed.bytes


def _observed(state: CompressionState, point: Point) -> Observed:
    event = findings.observed(state, point.recipe.id, SELECTION)
    assert event is not None
    return event
