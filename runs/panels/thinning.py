"""Thinning of panels for the wire: what a page can draw, of what may be 100,000 points. Pure.

The full data is in the panel itself and in its table (`runs.panels.tables`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.panels.panels import Front, Lines, Panel, Point, Samples, Series, Timeline, Units
from agent_forge.runs.panels.stages import Bar

#: Points of a series, points of a front, rows of a table and samples that go over the wire.
POINTS, ROWS = 2000, 1000

P = TypeVar("P", Lines, Front, Units, Samples, Timeline)


def thin(panel: Panel, points: int = POINTS, rows: int = ROWS) -> Panel:
    """Return the panel with at most `points` points a series or front, and `rows` rows.

    `total` says how many there are if some are left out. A table keeps its newest rows, samples the
    first, a timeline what failed, what goes on and the longest bars; a matrix, arms, shares, gates, a
    graph and a strip are returned as they are.
    """
    if isinstance(panel, Lines):
        series = tuple(thin_series(line, points) for line in panel.series)
        total = sum(len(line.x) for line in panel.series)
        return _less(panel, {"series": series}, sum(len(line.x) for line in series), total)
    if isinstance(panel, Front):
        front_points = thin_points(panel.points, points, panel.chosen)
        return _less(panel, {"points": front_points}, len(front_points), len(panel.points))
    if isinstance(panel, Units):
        return _less(panel, {"rows": panel.rows[-rows:]}, rows, len(panel.rows))
    if isinstance(panel, Samples):
        return _less(panel, {"samples": panel.samples[:rows]}, rows, len(panel.samples))
    if isinstance(panel, Timeline):
        return _thin_timeline(panel, points)
    return panel


def _thin_timeline(panel: Timeline, room: int) -> Timeline:
    """Return the timeline with at most `room` bars; short ones that are done go first."""
    ranks = [
        (_rank(bar), at, n) for at, lane in enumerate(panel.lanes) for n, bar in enumerate(lane.bars)
    ]
    bar_places = {(at, n) for _, at, n in sorted(ranks)[:room]}
    lanes = tuple(
        lane.model_copy(
            update={"bars": tuple(b for n, b in enumerate(lane.bars) if (at, n) in bar_places)}
        )
        for at, lane in enumerate(panel.lanes)
    )
    return _less(panel, {"lanes": lanes}, len(bar_places), len(ranks))


def _rank(bar: Bar) -> tuple[bool, float]:
    seconds = 0.0 if bar.start is None or bar.end is None else bar.end - bar.start
    return bar.state == "done", -seconds


def _less(panel: P, parts: dict[str, object], left: int, total: int) -> P:
    return panel if left >= total else panel.model_copy(update={**parts, "total": total})


def thin_series(series: Series, points: int = POINTS) -> Series:
    """Return the series with at most `points` points, or as it is if it has no more.

    The points are cut into buckets of consecutive points. Each bucket keeps the places of its
    smallest and largest y, of its smallest `low` and largest `high`, and of its first gap; the first
    and the last point are kept. So every extreme and every gap is still seen, and the same series
    is always thinned alike. Raises ValueError for fewer than 10 points.
    """
    if points < 10:
        raise ValueError("a series is thinned to 10 points or more")
    if len(series.x) <= points:
        return series
    bands = [b for b in (series.low, series.high) if b is not None]
    buckets = (points - 2) // (3 + len(bands))
    places = sorted({0, len(series.x) - 1, *_extremes(series, buckets)})
    return _picked(series, places)


def _extremes(series: Series, buckets: int) -> Iterator[int]:
    """Yield the indices of the points that each bucket keeps."""
    count = len(series.x)
    for number in range(buckets):
        span = range(number * count // buckets, (number + 1) * count // buckets)
        pairs = [(series.y[i], i) for i in span]
        valued_pairs = [(y, i) for y, i in pairs if y is not None]
        if valued_pairs:
            yield min(valued_pairs)[1]
            yield max(valued_pairs, key=lambda pair: (pair[0], -pair[1]))[1]
        yield from (i for i in [next((i for y, i in pairs if y is None), None)] if i is not None)
        if series.low is not None and (low := _known(series.low, span)):
            yield min(low)[1]
        if series.high is not None and (high := _known(series.high, span)):
            yield max(high, key=lambda pair: (pair[0], -pair[1]))[1]


def _known(values: Sequence[float | None], span: range) -> list[tuple[float, int]]:
    return [(value, i) for i in span if (value := values[i]) is not None]


def within(panel: Panel, begin: float | None, end: float | None, points: int = POINTS) -> Panel:
    """Return a panel of lines, cut to two places of its axis and thinned; None is an open end.

    Of each line the nearest point beyond either end stays, so that the line leaves the picture where
    it does. `total` says how many points there are in between if some are left out. Raises
    ConfigError for a panel that is no lines.
    """
    if not isinstance(panel, Lines):
        raise ConfigError(f"panel {panel.name} has no lines: `from` and `to` are for lines.")
    low = -math.inf if begin is None else begin
    high = math.inf if end is None else end
    series = tuple(_between(line, low, high) for line in panel.series)
    return thin(panel.model_copy(update={"series": series}), points)


def _between(series: Series, low: float, high: float) -> Series:
    """Return the series from its last point before `low` to its first point after `high`."""
    inside = [i for i, place in enumerate(series.x) if low <= place <= high]
    before = [i for i, place in enumerate(series.x) if place < low]
    after = [i for i, place in enumerate(series.x) if place > high]
    places = [*before[-1:], *inside, *after[:1]]
    return _picked(series, places)


def _picked(series: Series, places: Sequence[int]) -> Series:
    """Return the series with only the points at the indices `places`."""
    parts = {"x": series.x, "y": series.y, "low": series.low, "high": series.high}
    picked = {k: None if v is None else tuple(v[i] for i in places) for k, v in parts.items()}
    return series.model_copy(update=picked)


def thin_points(
    points: Sequence[Point], room: int = POINTS, chosen: str | None = None
) -> tuple[Point, ...]:
    """Return a tuple of at most `room` points in order, or of more if more are kept, chosen or extreme.

    The rest is thinned evenly, but for the extremes of each axis.
    """
    if len(points) <= room:
        return tuple(points)
    places = {i for i, p in enumerate(points) if p.kept or p.id == chosen}
    for axis in range(len(points[0].values)):
        order = [(p.values[axis], i) for i, p in enumerate(points)]
        places |= {min(order)[1], max(order)[1]}
    rest = [i for i in range(len(points)) if i not in places]
    room = max(0, room - len(places))
    places |= {rest[number * len(rest) // room] for number in range(room)} if rest else set()
    return tuple(points[i] for i in sorted(places))
