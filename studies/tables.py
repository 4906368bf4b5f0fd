"""The table of a study: its arms, and the figures that follow from their comparison. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runs.event_types import Figure
from studies.paired_bits import figure, mean
from studies.run import Run


@dataclass(frozen=True)
class Arm:
    """A model that is compared on the test slice: what it is in words, and its group in pictures."""

    words: str
    group: str


@dataclass(frozen=True)
class FigureRule:
    """A figure of a completed run: what it is in words, and how it follows from the run."""

    words: str
    value: Callable[[Run], Figure | None]
    unit: str = ""


def bits(words: str) -> FigureRule:
    """Return the rule of the result's bits per byte, the mean over domains."""

    def value(run: Run) -> Figure:
        assert run.result is not None
        return figure(mean(run.seen[run.result]), run.drawn[run.result], run.windows)

    return FigureRule(words, value, "bits/byte")


def ratio(over: str, words: str) -> FigureRule:
    """Return the rule of an arm's bits per byte over the result's."""

    def value(run: Run) -> Figure:
        assert run.result is not None
        share = mean(run.seen[over]) / mean(run.seen[run.result])
        return figure(share, run.drawn[over] / run.drawn[run.result], run.windows)

    return FigureRule(words, value)


def lead(over: str, words: str) -> FigureRule:
    """Return the rule of the bits per byte that an arm needs more than the result."""

    def value(run: Run) -> Figure:
        assert run.result is not None
        more = mean(run.seen[over]) - mean(run.seen[run.result])
        return figure(more, run.drawn[over] - run.drawn[run.result], run.windows)

    return FigureRule(words, value, "bits/byte")


def count(of: Callable[[Any], float], words: str, unit: str = "") -> FigureRule:
    """Return the rule of a number that follows from what `started` pins; it has no interval."""
    return FigureRule(words, lambda run: Figure(value=of(run.started)), unit)
