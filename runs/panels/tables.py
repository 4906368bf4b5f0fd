"""Panels as tables and as CSV, and a run's head and panels as a Markdown report. Pure.

A table has one row a value; CSV has all data of the panel.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.panels import thinning
from agent_forge.runs.panels.head import Head, Panels, Result, measured
from agent_forge.runs.panels.panels import (
    Arms,
    Front,
    Gates,
    Graph,
    Lines,
    Matrix,
    Panel,
    Samples,
    Shares,
    Strip,
    Timeline,
    Units,
)
from agent_forge.runs.system.plain_text import visible

Row = tuple[object, ...]

#: First characters of a text by which a spreadsheet takes it for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def find(panels: Iterable[Panel], name: str, run: str) -> Panel:
    """Return the panel of this name. Raises NotFoundError, which names those that there are."""
    panels_by_name = {panel.name: panel for panel in panels}
    if name not in panels_by_name:
        there = ", ".join(panels_by_name) or "none"
        raise NotFoundError(f"run {run} has no panel {name!r}. Its panels are: {there}.")
    return panels_by_name[name]


def to_csv(panel: Panel) -> str:
    """Return the panel as CSV (RFC 4180): a line of column names, then all rows.

    A missing number is an empty cell. A text that a spreadsheet would take for a formula begins
    with an apostrophe: names come from strangers.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    columns, rows = table(panel)
    writer.writerow(map(_safe, columns))
    writer.writerows([_safe(cell) for cell in row] for row in rows)
    return out.getvalue()


def _safe(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def table(panel: Panel) -> tuple[list[str], Iterator[Row]]:
    """Return (names of the columns, iterator of the rows) with all data of a panel."""
    match panel:
        case Lines():
            return ["series", "role", "seed", panel.x.name, panel.y.name, "low", "high"], _lines(panel)
        case Front():
            axes = [axis.name for axis in panel.axes]
            return ["point", "label", "series", *axes, "kept", "chosen"], _front(panel)
        case Matrix():
            return ["row", "column", "metric", "unit", "value", "low", "high"], _matrix(panel)
        case Arms():
            return ["arm", "group", *VALUE, "n", *(f"lead {v}" for v in VALUE), "verdict", "cost"], (
                _arms(panel)
            )
        case Shares():
            first = [] if panel.x is None else [panel.x.name]
            return ["part", *first, panel.metric.name], _shares(panel)
        case Units():
            return [column.name for column in panel.columns], iter(panel.rows)
        case Samples():
            return ["title", "prompt", "text", "verdict", "marks"], _samples(panel)
        case Gates():
            return ["gate", "metric", "unit", *_GATE], _gates(panel)
        case Graph():
            return ["record", *_NODE, *_ENDS], _graph(panel)
        case Strip():
            return [*_STAGE, "figure", "unit", *VALUE, "runs"], _strip(panel)
        case Timeline():
            return ["group", "lane", "bar", "start (s)", "end (s)", "state", "run"], _timeline(panel)


VALUE = ("value", "low", "high")
_GATE = ("value", "baseline", "low", "high", "limit", "verdict", "by", "reason")
_NODE = ("id", "name", "group", "says", "column", "value", "ours", "lane", "run")
_ENDS = ("source", "target")
_STAGE = ("number", "name", "what", "state", "inside", "left_s", "gate")


def _lines(panel: Lines) -> Iterator[Row]:
    for series in panel.series:
        none: Sequence[float | None] = [None] * len(series.x)
        for point in zip(series.x, series.y, series.low or none, series.high or none, strict=True):
            yield (series.name, series.role, series.seed, *point)


def _front(panel: Front) -> Iterator[Row]:
    for point in panel.points:
        chosen = point.id == panel.chosen
        yield (point.id, point.label, point.series, *point.values, point.kept, chosen)


def _matrix(panel: Matrix) -> Iterator[Row]:
    none = ((None,) * len(panel.columns),) * len(panel.rows)
    parts = (panel.values, panel.low or none, panel.high or none)
    for number, row in enumerate(panel.rows):
        metric = panel.metrics[number if len(panel.metrics) > 1 else 0]
        for place, column in enumerate(panel.columns):
            yield (row, column, metric.name, metric.unit, *(part[number][place] for part in parts))


def _arms(panel: Arms) -> Iterator[Row]:
    for arm in panel.arms:
        lead = arm.lead
        lead_cells = (lead.value, lead.low, lead.high, lead.verdict) if lead else (None,) * 4
        yield (arm.name, arm.group, arm.value, arm.low, arm.high, arm.n, *lead_cells, arm.cost)


def _shares(panel: Shares) -> Iterator[Row]:
    places = [()] if panel.x is None else [(x,) for x in panel.at]
    for part in panel.parts:
        for place, value in zip(places, part.values, strict=True):
            yield (part.name, *place, value)


def _samples(panel: Samples) -> Iterator[Row]:
    for sample in panel.samples:
        marks = "; ".join(f"{m.start} to {m.end}: {m.says}" for m in sample.marks)
        yield (sample.title, sample.prompt, sample.text, sample.verdict, marks)


def _gates(panel: Gates) -> Iterator[Row]:
    for gate in panel.gates:
        yield (gate.name, gate.metric.name, gate.metric.unit, *(getattr(gate, n) for n in _GATE))


def _graph(panel: Graph) -> Iterator[Row]:
    for node in panel.nodes:
        yield ("node", *(getattr(node, name) for name in _NODE), None, None)
    for edge in panel.edges:
        cells = (None, None, None, edge.says, *(None,) * 5)
        yield ("edge", *cells, edge.source, edge.target)


def _strip(panel: Strip) -> Iterator[Row]:
    for stage in panel.stages:
        figure, cells = stage.figure, tuple(getattr(stage, name) for name in _STAGE)
        values: Row = (None,) * 5
        if figure is not None:
            metric = figure.metric
            values = (metric.name, metric.unit, figure.value, figure.low, figure.high)
        yield (*cells, *values, ", ".join(stage.runs))


def _timeline(panel: Timeline) -> Iterator[Row]:
    for lane in panel.lanes:
        for bar in lane.bars:
            yield (lane.group, lane.name, bar.name, bar.start, bar.end, bar.state, bar.run)


#: Points of a series, rows of a panel's table, and characters of a cell.
POINTS, ROWS, CELL = 10, 50, 200


def markdown(overview: Panels) -> str:
    """Return head and panels as Markdown; long series and tables are thinned, and say so."""
    lines = list(_head(overview.head))
    for panel in overview.panels:
        lines += ["", f"## {_cell(panel.title)}", "", _cell(panel.says), "", *_table(panel)]
    return "\n".join(lines) + "\n"


def called(report: str, run: str, name: str) -> str:
    """Return the report with the run's name: beside its id in the first line, elsewhere instead."""
    heading, line, rest = report.partition("\n")
    if name != run:
        heading = re.sub(rf"(?<![\w.-]){re.escape(run)}(?![\w.-])", f"{name} ({run})", heading, count=1)
    return heading + line + renamed(rest, run, name)


def renamed(text: str, run: str, name: str) -> str:
    """Return the text with the run's name in the place of its id in all code, such as commands."""
    id_ = re.compile(rf"(?<![\w.-]){re.escape(run)}(?![\w-])")
    return re.sub(r"`[^`]*`", lambda code: id_.sub(lambda _: name, code[0]), text)


def _head(head: Head) -> Iterator[str]:
    of = "" if head.of is None else f" of {head.of}"
    yield f"# Run {_cell(head.run)}"
    yield ""
    yield f"Kind: {head.kind}. Status: {head.status}. Done: {head.done}{of} ({head.unit})."
    if head.verdict:
        yield ""
        yield _plain(head.verdict)
    if head.result is not None:
        yield ""
        yield _result(head.result)
    if head.facts:
        yield ""
    for fact in head.facts:
        yield f"- {_cell(fact.name)}: {_cell(fact.words())}"


def _result(result: Result) -> str:
    """Return the result in one sentence: its value, interval, items, and lead."""
    if result.says:
        return f"{_cell(result.says)}."
    value = measured(result.value, result.metric.unit, result.low, result.high)
    sentence = f"**{_cell(result.name)}**: {_cell(result.metric.name)} {_cell(value)}"
    sentence += f" on {_cell(result.on)}" if result.on else ""
    sentence += f", {result.n:,} items" if result.n is not None else ""
    if result.lead is not None and result.over is not None:
        lead = result.lead
        sentence += f"; lead over {_cell(result.over)}: {_cell(lead.value)}"
        sentence += f" ({_cell(lead.low)} … {_cell(lead.high)}), {lead.verdict}"
    return f"{sentence}."


def _table(panel: Panel) -> Iterator[str]:
    columns, rows = table(thinning.thin(panel, POINTS, ROWS))
    shown = list(islice(rows, ROWS))
    yield f"| {' | '.join(map(_cell, columns))} |"
    yield "|" + "---|" * len(columns)
    for row in shown:
        yield f"| {' | '.join(map(_cell, row))} |"
    total = sum(1 for _ in table(panel)[1])
    if total > len(shown):
        yield ""
        yield f"{len(shown):,} of {total:,} rows."


def _cell(value: object) -> str:
    """Return a value as the text of a cell: one line, cut, with Markdown and HTML escaped."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = visible(str(value))
    return _plain(text if len(text) <= CELL else f"{text[:CELL]} …")


def _plain(text: str) -> str:
    """Return a text with the characters escaped that mean something in Markdown or HTML."""
    for mark, plain in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("[", "\\["), ("`", "\\`")):
        text = text.replace(mark, plain)
    return text
