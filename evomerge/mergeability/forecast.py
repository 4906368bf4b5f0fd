"""Forecast: can a merge beat the best of its sources and their base? Pure, no torch.

The models on the lines from the base to each source, between each two sources, and the mean of all
sources are merges with no search at all. If the best of them is better than the best end on the
same text, so that chance is no explanation, then a merge can win. If all of them are worse, the
ends are in different valleys of the loss, and it cannot: other methods begin from the same lines.

    loss of a model    nats a token, the mean over domains of text
    better, worse      the 95 % interval of the difference is below, above zero; a paired bootstrap
                       of windows, within domains
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agent_forge.evaluation.measures import bootstrap
from agent_forge.evaluation.measures.bootstrap import Comparison

Answer = Literal["yes", "no", "open"]
#: Places of a line that are measured, beside its ends.
INSIDE = (0.25, 0.5, 0.75)
#: What an answer says, in words.
WORDS: Mapping[Answer, str] = {
    "yes": "the best merge on the lines is better than {best}",
    "no": "every merge on the lines is worse than {best}",
    "open": "no merge on the lines is certainly better than {best}, and not all are certainly worse",
}

#: Domain → (summed losses, predicted tokens) of each window.
Losses = Mapping[str, tuple[Sequence[float], Sequence[float]]]


@dataclass(frozen=True)
class MergePoint:
    """A merge base + Σ share · task vector: a share for each source, and its losses."""

    shares: tuple[float, ...]
    losses: Losses

    @property
    def loss(self) -> float:
        """Nats a token, the mean over domains; infinite if it is NaN."""
        rates = [math.fsum(sums) / math.fsum(tokens) for sums, tokens in self.losses.values()]
        mean = sum(rates) / len(rates)
        return math.inf if math.isnan(mean) else mean

    @property
    def is_end(self) -> bool:
        """True if the point is the base or a source."""
        return sorted(self.shares)[:-1] == [0.0] * (len(self.shares) - 1) and (
            max(self.shares) in (0.0, 1.0)
        )


@dataclass(frozen=True)
class LossLine:
    """Two ends, None for the base or a source's place, and the loss at 0, ¼, ½, ¾ and 1."""

    start: int | None
    end: int
    losses: tuple[float, ...]

    @property
    def barrier(self) -> float:
        """Greatest loss above the straight line between the losses of the ends; 0 if none is above.

        Source: Frankle et al. 2020, arXiv 1912.05671, section 2.
        """
        steps = len(self.losses) - 1
        first, last = self.losses[0], self.losses[-1]
        return max(
            loss - (first + (last - first) * place / steps) for place, loss in enumerate(self.losses)
        )


@dataclass(frozen=True)
class MergeForecast:
    """The answer, the best end and the best merge, and the merge's loss less the end's."""

    answer: Answer
    best_end: tuple[float, ...]
    best_merge: tuple[float, ...]
    difference: Comparison


def shares(count: int) -> list[tuple[float, ...]]:
    """Return a list of points to measure, a tuple of `count` shares each: ends, lines, mean of all."""
    units = [tuple(float(i == j) for j in range(count)) for i in range(count)]
    ends = [(0.0,) * count, *units]
    places = list(ends)
    for start, end in lines(count):
        places += [_between(ends, start, end, place) for place in INSIDE]
    mean = (1.0 / count,) * count
    return list(dict.fromkeys([*places, mean]))


def lines(count: int) -> list[tuple[int | None, int]]:
    """Return (start, end) of the lines among `count` sources: base (None) to each, each to each."""
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    return [*((None, i) for i in range(count)), *pairs]


def line(points: Sequence[MergePoint], start: int | None, end: int) -> LossLine:
    """Return the `LossLine` between two ends, with the losses that were measured on it."""
    losses = {point.shares: point.loss for point in points}
    count = len(points[0].shares)
    ends = [(0.0,) * count, *(tuple(float(i == j) for j in range(count)) for i in range(count))]
    places = [_between(ends, start, end, place) for place in (0.0, *INSIDE, 1.0)]
    return LossLine(start, end, tuple(losses[place] for place in places))


def _between(
    ends: Sequence[tuple[float, ...]], start: int | None, end: int, place: float
) -> tuple[float, ...]:
    a, b = ends[0 if start is None else start + 1], ends[end + 1]
    return tuple(x * (1 - place) + y * place for x, y in zip(a, b, strict=True))


def forecast(points: Sequence[MergePoint]) -> MergeForecast:
    """Return a `MergeForecast` by measured points: answer, best end and merge, and their difference."""
    best_end = min((p for p in points if p.is_end), key=lambda p: p.loss)
    best_merge = min((p for p in points if not p.is_end), key=lambda p: p.loss)
    if math.isinf(best_merge.loss):
        nothing = Comparison(difference=math.inf, low=math.inf, high=math.inf)
        return MergeForecast("no", best_end.shares, best_merge.shares, nothing)
    lead = compare(best_merge, best_end)
    answer: Answer = "open"
    if lead.high < 0:
        answer = "yes"
    elif lead.low > 0:
        answer = "no"
    return MergeForecast(answer, best_end.shares, best_merge.shares, lead)


def compare(a: MergePoint, b: MergePoint) -> Comparison:
    """Return a `Comparison`: loss of `a` less that of `b`, 95 % interval, windows drawn together."""
    rows = []
    for domain, (sums, tokens) in sorted(a.losses.items()):
        drawn = bootstrap.draws(len(sums), "mergeability", domain)
        losses = b.losses[domain][0]
        rows.append(bootstrap.ratio(drawn, sums, tokens) - bootstrap.ratio(drawn, losses, tokens))
    return bootstrap.interval(np.mean(rows, axis=0), a.loss - b.loss)
