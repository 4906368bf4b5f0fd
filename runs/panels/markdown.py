"""Head and panels of a run of any kind as Markdown: a report that people and models read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from runs.panels import tables, thinning
from runs.panels.head import Head, Panels, Result, measured
from runs.panels.panels import Panel
from runs.system.plain_text import visible

#: Points of a series, rows of a panel's table, and characters of a cell.
POINTS, ROWS, CELL = 10, 50, 200


def markdown(overview: Panels) -> str:
    """Return head and panels as Markdown; long series and tables are thinned, and say so."""
    lines = list(_head(overview.head))
    for panel in overview.panels:
        lines += ["", f"## {_cell(panel.title)}", "", _cell(panel.says), "", *_table(panel)]
    return "\n".join(lines) + "\n"


def called(report: str, run: str, name: str) -> str:
    """Return a run's report with its name: beside its id in the first line, else in its place."""
    heading, line, rest = report.partition("\n")
    if name != run:
        heading = re.sub(
            rf"(?<![\w.-]){re.escape(run)}(?![\w.-])", f"{name} ({run})", heading, count=1
        )
    return heading + line + renamed(rest, run, name)


def renamed(text: str, run: str, name: str) -> str:
    """Return a text whose code, such as a command, has a run's name in the place of its id."""
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
    columns, rows = tables.table(thinning.thin(panel, POINTS, ROWS))
    shown = list(islice(rows, ROWS))
    yield f"| {' | '.join(map(_cell, columns))} |"
    yield "|" + "---|" * len(columns)
    for row in shown:
        yield f"| {' | '.join(map(_cell, row))} |"
    total = sum(1 for _ in tables.table(panel)[1])
    if total > len(shown):
        yield ""
        yield f"{len(shown):,} of {total:,} rows."


def _cell(value: Any) -> str:
    """Return a value for a cell: in one line, cut, and without meaning in Markdown or HTML."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = visible(str(value))
    return _plain(text if len(text) <= CELL else f"{text[:CELL]} …")


def _plain(text: str) -> str:
    """Return a text without meaning in Markdown or HTML."""
    for mark, plain in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("[", "\\["), ("`", "\\`")):
        text = text.replace(mark, plain)
    return text
