"""Runs of any kinds side by side: if results compare, what differs, panels of one name. Pure.

Lines of one name are laid over each other, one chart a name, with a line for each run. Repetitions
with several seeds become their median and a band over all, as on the dashboard
(`dashboard/src/charts/seeds.ts`). Other panels of one name stand beside each other as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.panels.head import Head
from agent_forge.runs.panels.panels import Lines, Panel, Series
from agent_forge.runs.panels.shapes import Shape

#: Runs that are compared at once, at most: as many as a chart has colours.
MOST_RUNS = 6


@dataclass(frozen=True)
class ComparedRun:
    """A run as it is compared: see `View.seen_beside`."""

    head: Head
    panels: Sequence[Panel]
    settings: Mapping[str, object]
    #: Why results of two runs do not compare → what must be equal in both if they do.
    yardstick: Mapping[str, object]
    lineage: str


class Judgement(Shape):
    """Statement if the results of two runs can be compared."""

    run: str
    other: str
    #: Why not; None if they can.
    why_not: str | None
    same_lineage: bool


class SettingBeside(Shape):
    """A setting that is not the same in all runs: a value for each run, None where it has none."""

    name: str
    values: tuple[object, ...]


class RunPanel(Shape):
    """A panel of one of the runs."""

    run: str
    panel: Panel


class PanelsBeside(Shape):
    """Panels of one name, of two runs or more."""

    name: str
    title: str
    panels: tuple[RunPanel, ...]


class SideBySide(Shape):
    """Runs of any kinds side by side."""

    heads: tuple[Head, ...]
    #: Of the first run with each other one.
    judgements: tuple[Judgement, ...]
    settings: tuple[SettingBeside, ...]
    lines: tuple[Lines, ...]
    beside: tuple[PanelsBeside, ...]
    #: Run → what it is called, of those that the run list knows.
    names: dict[str, str] = {}
    #: The runs that a gate has stopped until a user decides.
    undecided: tuple[str, ...] = ()


def side_by_side(runs: Sequence[ComparedRun]) -> SideBySide:
    """Return a SideBySide: heads, judgements, unequal settings, common panels. Raises ConfigError."""
    if not 2 <= len(runs) <= MOST_RUNS:
        raise ConfigError(f"2 to {MOST_RUNS} runs are compared at once, not {len(runs)}.")
    shared = [run.panels for run in runs]
    names = dict.fromkeys(panel.name for panels in shared for panel in panels)
    lines: list[Lines] = []
    beside: list[PanelsBeside] = []
    for name in names:
        run_panels = [
            RunPanel(run=run.head.run, panel=panel)
            for run in runs
            for panel in run.panels
            if panel.name == name
        ]
        if len(run_panels) < 2 or len({panel.panel.kind for panel in run_panels}) > 1:
            continue
        if isinstance(run_panels[0].panel, Lines):
            lines += overlaid(run_panels)
        else:
            beside.append(
                PanelsBeside(name=name, title=run_panels[0].panel.title, panels=tuple(run_panels))
            )
    return SideBySide(
        heads=tuple(run.head for run in runs),
        judgements=tuple(_judgement(runs[0], other) for other in runs[1:]),
        settings=_settings(runs),
        lines=tuple(lines),
        beside=tuple(beside),
    )


def overlaid(panels: Sequence[RunPanel]) -> list[Lines]:
    """Return a chart for each name of lines that two runs or more have, with a line for each run.

    Lines along other axes are not laid over each other. If every run has one line only, these are
    laid over each other, also under different names.
    """
    pairs = [
        (run_panel.run, run_panel.panel) for run_panel in panels if isinstance(run_panel.panel, Lines)
    ]
    first = pairs[0][1]
    alike = [(run, panel) for run, panel in pairs if _axes(panel) == _axes(first)]
    single = all(len(panel.series) == 1 for _, panel in alike)
    series: dict[str, list[Series]] = {}
    for run, panel in alike:
        for line in panel.series:
            name = first.title if single else line.name
            run_line = line.model_copy(update={"name": run, "role": "ours"})
            series.setdefault(name, []).append(run_line)
    charts = {name: lines for name, lines in series.items() if len({line.name for line in lines}) > 1}
    return [
        Lines(
            name=first.name if len(charts) == 1 else _panel_name(first.name, number, name),
            title=first.title if single else f"{first.title}: {name}",
            says=f"{len({line.name for line in lines})} runs over each other.",
            x=first.x,
            y=first.y,
            series=tuple(lines),
        )
        for number, (name, lines) in enumerate(charts.items(), 1)
    ]


def _panel_name(panel: str, number: int, line: str) -> str:
    """Return a chart's name for one line: "loss-base", or "loss-2" if the line's name does not fit."""
    word = re.sub(r"[^a-z0-9]+", "-", line.lower()).strip("-")
    return f"{panel[:20]}-{word if word and len(word) <= 40 else number}"


def _axes(panel: Lines) -> tuple[str, ...]:
    """Return (name of x, unit of x, name of y, unit of y) of a panel of lines."""
    return panel.x.name, panel.x.unit, panel.y.name, panel.y.unit


def _judgement(overview: ComparedRun, other: ComparedRun) -> Judgement:
    return Judgement(
        run=overview.head.run,
        other=other.head.run,
        why_not=_why_not(overview, other),
        same_lineage=overview.lineage == other.lineage,
    )


def _why_not(overview: ComparedRun, other: ComparedRun) -> str | None:
    """Return why the results of two runs cannot be compared; None if they can."""
    if overview.head.kind != other.head.kind:
        kinds = f"{overview.head.kind} and {other.head.kind}"
        return f"they are of two kinds, {kinds}, whose results are not measured alike"
    results = [each_side.head.result for each_side in (overview, other)]
    for side, result in zip((overview, other), results, strict=True):
        if result is None:
            return f"{side.head.run} has no result yet"
    for why, value in overview.yardstick.items():
        if value != other.yardstick.get(why):
            return why
    first_result, second_result = (result for result in results if result is not None)
    if first_result.metric != second_result.metric:
        return f"one result is {first_result.metric.name}, the other {second_result.metric.name}"
    if first_result.on != second_result.on:
        return f"one result is of the {first_result.on}, the other of the {second_result.on}"
    return None


def _settings(runs: Sequence[ComparedRun]) -> tuple[SettingBeside, ...]:
    names = dict.fromkeys(name for run in runs for name in run.settings)
    rows = {name: tuple(run.settings.get(name) for run in runs) for name in names}
    return tuple(
        SettingBeside(name=name, values=values)
        for name, values in rows.items()
        if any(value != values[0] for value in values)
    )


def groups(series: Iterable[Series]) -> dict[tuple[str, str], list[Series]]:
    """Return (name, role) → the lines that are repetitions of one another, in their order."""
    series_by_name: dict[tuple[str, str], list[Series]] = {}
    for line in series:
        series_by_name.setdefault((line.name, line.role), []).append(line)
    return series_by_name


def summary(seeds: Sequence[Series]) -> Series | None:
    """Return the median over seeds, with a band from the least to the greatest; None for one seed.

    Between two of its points a seed lies on the straight line, because thinned lines have points at
    different places. At a gap and outside of its ends a seed has no value, and the others are summed
    up. None, too, if the places of a seed do not ascend.
    """
    if len(seeds) < 2 or any(a >= b for line in seeds for a, b in pairwise(line.x)):
        return None
    places = sorted({place for line in seeds for place in line.x})
    columns = [[v for line in seeds if (v := _at(line, place)) is not None] for place in places]
    return Series(
        name=seeds[0].name,
        role=seeds[0].role,
        x=tuple(places),
        y=tuple(median(values) if values else None for values in columns),
        low=tuple(min(values, default=None) for values in columns),
        high=tuple(max(values, default=None) for values in columns),
    )


def _at(series: Series, place: float) -> float | None:
    """Return a line's value at a place, interpolated between its points; None where it has none."""
    index = bisect_left(series.x, place)
    if index == len(series.x):
        return None
    if series.x[index] == place:
        return series.y[index]
    if index == 0:
        return None
    (a, b), (low, high) = series.x[index - 1 : index + 1], series.y[index - 1 : index + 1]
    if low is None or high is None:
        return None
    return low + (high - low) * (place - a) / (b - a)
