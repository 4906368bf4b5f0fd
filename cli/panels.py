"""Head and panels of a run as text, for `forge show` and `forge watch`. No torch.

A panel becomes a `TextPicture`: curves of one letter a point, and a table. Its lines can be cut to fit
a screen or printed in full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_forge.cli.options import grid, short, wrapped
from agent_forge.runs.kinds.view import MOST_SHARE
from agent_forge.runs.panels import thinning
from agent_forge.runs.panels.head import Head, measured
from agent_forge.runs.panels.panels import (
    Arms,
    Axis,
    Front,
    Gates,
    Graph,
    Lead,
    Lines,
    Matrix,
    Panel,
    Samples,
    Series,
    Shares,
    Strip,
    Timeline,
    Units,
)
from agent_forge.runs.panels.stages import Bar, Stage
from agent_forge.runs.system.durations import duration

#: Letters from low to high; the second for terminals without the first.
LEVELS, PLAIN_LEVELS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
#: State of a stage → its mark, and a mark for terminals without that letter.
MARKS = {
    "waiting": "·.",
    "running": "◔o",
    "measuring": "◔o",
    "paused": "‖=",
    "ended": "✓+",
    "reused": "↺r",
    "passed unchanged": "⤳>",
    "gate stopped": "✗X",
    "overridden": "!!",
    "failed": "✗X",
    "cancelled": "//",
}
#: Rows of a table that are shown; letters of a curve, of a bar, and of a text in a cell.
ROWS, LETTERS, BAR, CELL = 20, 60, 24, 60
#: Columns of a line, and those that a curve leaves for its name's gap and its last value.
COLUMNS, BESIDE = 80, 14


@dataclass(frozen=True)
class TextPicture:
    """A panel as text: lines of curves, then a table; `more` rows are left out."""

    curves: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    more: int = 0


def spark(values: Sequence[float | None], low: float, high: float, levels: str = LEVELS) -> str:
    """Return a curve as text: a letter a value, from `low` to `high`, and a space for a missing one."""
    step = (high - low) / (len(levels) - 1)
    return "".join(
        " " if v is None else levels[min(len(levels) - 1, round((v - low) / step) if step else 0)]
        for v in values
    )


def cell(value: object) -> str:
    """Return a value as a cell's text: "-" for None, yes or no, numbers with commas, long texts cut."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if abs(value) < 1000:
            return f"{value:.5g}"
        return f"{value:,.{1 if abs(value) < 10_000 and not value.is_integer() else 0}f}"
    text = " ".join(str(value).split())
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


# ---- the head --------------------------------------------------------------------------------


def head_lines(head: Head) -> list[tuple[str, str]]:
    """Return (word, text) pairs: kind, progress, result, facts, and the run's current activity."""
    of = "" if head.of is None else f" of {head.of:,}"
    done = f"{head.done:,}{of} {head.unit}s"
    now = head.now
    lines = [("kind", head.title), ("done", now.progress if now and now.progress else done)]
    if result := head.result:
        value = measured(result.value, result.metric.unit, result.low, result.high)
        on = f" on {result.on}" if result.on else ""
        items = f", {result.n:,} items" if result.n is not None else ""
        what = dict.fromkeys((result.name, result.metric.name))  # said once, if they are the same
        text = result.says or f"{' '.join(what)} {value}{on}{items}"
        model = result.called or (short(result.model) if result.model else "")
        lines.append(("result", f"{text}  {model}".rstrip()))
        if lead := result.lead:
            lines.append(("lead", f"{_signed(lead)} over {result.over}: {lead.verdict}"))
    if head.verdict:
        lines.insert(0, ("verdict", head.verdict))
    reasons = [str(fact.value) for fact in head.facts if fact.name == "reason"]
    facts = [fact for fact in head.facts if fact.name != "reason"]
    if facts:
        text = (f"{fact.name} {fact.words()}" for fact in facts)
        lines.append(("facts", ", ".join(text)))
    lines += [("reason", reason) for reason in reasons]
    if now:
        lines.append(("now", now.doing or f"waits for {now.waits_for or 'its next task'}"))
        if now.helps:
            lines.append(("helps", now.helps))
        if now.part is not None and now.part.progress:
            lines.append(("part", f"{now.part.name}: {now.part.progress}"))
    return lines


def _signed(lead: Lead) -> str:
    """Return a lead with its interval as text, three digits each: the interval shows the rest."""
    return f"{lead.value:+.3g} ({lead.low:+.3g} to {lead.high:+.3g})"


# ---- panels ----------------------------------------------------------------------------------


def picture(panel: Panel, width: int = COLUMNS, plain: bool = False) -> TextPicture:
    """Return the TextPicture of a panel, with curves that fit a line of `width` columns."""
    return _MAKERS[panel.kind](panel, width, PLAIN_LEVELS if plain else LEVELS)


def _cut(columns: Sequence[str], rows: Sequence[Sequence[object]], newest: bool = False) -> TextPicture:
    shown = rows[-ROWS:] if newest else rows[:ROWS]
    texts = [[cell(value) for value in row] for row in shown]
    return TextPicture((), columns, texts, len(rows) - len(shown))


def _scaled(axis: Axis, value: float | None) -> float | None:
    """Return the value, or its log10 on a logarithmic axis; None if it is None or has no logarithm."""
    if value is None or not axis.log:
        return value
    return math.log10(value) if value > 0 else None


def _called(series: Series) -> str:
    return series.name if series.seed is None else f"{series.name} (seed {series.seed})"


def _lines(panel: Lines, width: int, levels: str) -> TextPicture:
    wide = max((len(_called(s)) for s in panel.series), default=0)
    letters = max(10, min(LETTERS, width - wide - BESIDE))
    thin = [(s, thinning.thin_series(s, letters)) for s in panel.series]
    heights = [[_scaled(panel.y, y) for y in short_.y] for _, short_ in thin]
    numbers = [h for row in heights for h in row if h is not None]
    if not numbers:
        return TextPicture([f"{_called(s)}  no value yet" for s in panel.series])
    scale = min(numbers), max(numbers), levels
    curves = [
        f"{_called(s):{wide}}  {spark(row, *scale)}  {cell(_last(s))}"
        for (s, _), row in zip(thin, heights, strict=True)
    ]
    values = [y for s in panel.series for y in s.y if y is not None]
    ends = [x for s in panel.series for x in (s.x[:1] + s.x[-1:])]
    log = ", logarithmic" if panel.y.log else ""
    curves.append(
        f"{panel.x.name} {cell(min(ends))} to {cell(max(ends))}; "
        f"{_named(panel.y)} {cell(min(values))} to {cell(max(values))}{log}"
    )
    return TextPicture([*curves, *(f"line at {cell(at.at)}: {at.says}" for at in panel.limits)])


def _named(axis: Axis) -> str:
    return f"{axis.name} ({axis.unit})" if axis.unit else axis.name


def _last(series: Series) -> float | None:
    return next((y for y in reversed(series.y) if y is not None), None)


def _front(panel: Front, _width: int, _levels: str) -> TextPicture:
    points = [p for p in panel.points if p.kept or p.id == panel.chosen]
    rows = [(short(p.id), p.label, *p.values, "chosen" if p.id == panel.chosen else "") for p in points]
    table = _cut(["point", "name", *map(_named, panel.axes), "choice"], rows)
    rest = len(panel.points) - len(points)
    notes = [f"{rest} more points are beaten by these"] if rest else []
    return TextPicture(notes, table.columns, table.rows, table.more)


def _matrix(panel: Matrix, _width: int, _levels: str) -> TextPicture:
    """Return the picture of a matrix, with the longer side as rows: a line has little room."""
    metrics = panel.metrics if len(panel.metrics) > 1 else panel.metrics * len(panel.rows)
    names = [
        f"{'' if name == metric.name else f'{name}: '}{_named_column(metric.name, metric.unit)}"
        for name, metric in zip(panel.rows, metrics, strict=True)
    ]
    values = [_ranges(panel, number) for number in range(len(panel.rows))]
    if len(panel.columns) > len(panel.rows):
        heads = ["", *names]
        measures = {_named_column(metric.name, metric.unit) for metric in panel.metrics}
        if len(measures) == 1 < len(panel.rows):  # it is said once
            heads = [*measures, *panel.rows]
        return _cut(heads, [*zip(panel.columns, *values, strict=True)])
    rows = [(name, *row) for name, row in zip(names, values, strict=True)]
    return _cut(["", *panel.columns], rows)


def _ranges(panel: Matrix, number: int) -> list[str]:
    """Return the cells of row `number`, each with its interval if it has one."""
    texts = list(map(cell, panel.values[number]))
    if panel.low is None or panel.high is None:
        return texts
    ends = zip(texts, panel.low[number], panel.high[number], strict=True)
    return [t if a is None else f"{t} ({cell(a)} to {cell(b)})" for t, a, b in ends]


def _arms(panel: Arms, _width: int, _levels: str) -> TextPicture:
    """Return the picture of arms; a number of items that all share stands once, above the table."""
    counts = {arm.n for arm in panel.arms}
    each = len(counts) > 1
    rows = []
    for arm in panel.arms:
        lead = [_signed(arm.lead), arm.lead.verdict] if arm.lead else ["", ""]
        mark = "baseline" if arm.name == panel.baseline else arm.group
        rows.append((arm.name, mark, arm.value, *([arm.n] if each else []), *lead))
    columns = ["arm", "kind", panel.metric.name, *(["n"] if each else [])]
    drawn = _cut([*columns, "lead (95 % interval)", "verdict"], rows)
    same = [] if each or counts == {None} else [f"each on {counts.pop():,} items"]
    return TextPicture(same, drawn.columns, drawn.rows, drawn.more)


def _shares(panel: Shares, _width: int, levels: str) -> TextPicture:
    last = [part.values[-1] if part.values else 0.0 for part in panel.parts]
    whole, full = math.fsum(last) or 1.0, levels[-1]
    wide = max((len(part.name) for part in panel.parts), default=0)
    bars = [
        f"{part.name:{wide}}  {full * round(BAR * value / whole):{BAR}}  {value / whole:.1%}  "
        f"{cell(value)}"
        for part, value in zip(panel.parts, last, strict=True)
    ]
    where = [f"at {panel.x.name} {cell(panel.at[-1])}"] if panel.x and panel.at else []
    return TextPicture([*bars, *where])


def _units(panel: Units, _width: int, _levels: str) -> TextPicture:
    ids = {i for i, column in enumerate(panel.columns) if column.type == "model"}
    rows = [
        tuple(short(str(v)) if v and i in ids else v for i, v in enumerate(row))
        for row in panel.rows[-ROWS:]
    ]
    table = _cut([_named_column(c.name, c.unit) for c in panel.columns], rows)
    return TextPicture((), table.columns, table.rows, len(panel.rows) - len(rows))


def _named_column(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _samples(panel: Samples, _width: int, _levels: str) -> TextPicture:
    rows = [(s.verdict, s.title, s.prompt, s.text) for s in panel.samples]
    return _cut(["verdict", "title", "prompt", "text"], rows)


def _gates(panel: Gates, _width: int, _levels: str) -> TextPicture:
    rows = [
        (
            f"{g.group} {g.metric.name}" if g.group else g.name,
            g.value if g.value is None else measured(g.value, g.metric.unit, g.low, g.high),
            *(end if end is None else measured(end, g.metric.unit) for end in (g.baseline, g.limit)),
            g.verdict,
            g.by or "",
            g.reason or "",
        )
        for g in panel.gates
    ]
    return _cut(["gate", "value", "baseline", "limit", "verdict", "by", "reason"], rows)


def _graph(panel: Graph, _width: int, _levels: str) -> TextPicture:
    named = {node.id: node.name for node in panel.nodes}
    parents: dict[str, list[str]] = {}
    for edge in panel.edges:
        parents.setdefault(edge.target, []).append(named[edge.source])
    nodes = sorted(panel.nodes, key=lambda n: (not n.ours, -1 if n.column is None else n.column))
    rows = [
        (short(n.id), n.name, n.group, n.column, n.value, ", ".join(parents.get(n.id, [])))
        for n in nodes
    ]
    value = panel.metric.name if panel.metric else "value"
    return _cut(["id", "name", "kind", "column", value, "from"], rows)


def _strip(panel: Strip, _width: int, levels: str) -> TextPicture:
    plain = levels is PLAIN_LEVELS
    rows = [
        (f"{stage.number} {stage.name}", stage.what, f"{MARKS[stage.state][plain]} {_standing(stage)}")
        for stage in panel.stages
    ]
    return TextPicture((), [panel.unit, "kind", "state, gates and figure"], rows)


def _standing(stage: Stage) -> str:
    """Return a stage in one line: its state, its gates, and its main figure."""
    done = "" if stage.inside is None else f", {math.floor(100 * min(stage.inside, MOST_SHARE))} %"
    left = "" if stage.left_s is None else f", {duration(stage.left_s)} left"
    parts = [f"{stage.state}{done}{left}", stage.gate]
    if stage.figure:
        metric = stage.figure.metric
        parts.append(f"{metric.name} {measured(stage.figure.value, metric.unit)}")
    return "; ".join(filter(None, parts))


def _timeline(panel: Timeline, width: int, levels: str) -> TextPicture:
    """Return the picture of lanes as letters; each shows the most important state in its span."""
    wide = max((len(lane.name) for lane in panel.lanes), default=0)
    letters = max(10, min(LETTERS, width - wide - 2))
    step = (panel.until or 1.0) / letters
    lines = []
    for lane in panel.lanes:
        row = [" "] * letters
        for state, letter in (("done", levels[3]), ("cancelled", "/"), ("running", levels[-1])):
            for bar in (bar for bar in lane.bars if bar.state == state):
                for at in _letters_of(bar, panel.until, step, letters):
                    row[at] = letter
        for bar in (bar for bar in lane.bars if bar.state == "failed"):
            row[_letters_of(bar, panel.until, step, letters)[-1]] = "x"
        lines.append(f"{lane.name:{wide}}  {''.join(row)}".rstrip())
    end = f"0 to {panel.until:.0f} s after {panel.began:%Y-%m-%d %H:%M:%S} UTC; x: failed"
    return TextPicture([*lines, end])


def _letters_of(bar: Bar, until: float, step: float, letters: int) -> range:
    """Return the range of the indices of the letters that a bar covers; at least one."""
    end = until if bar.end is None else bar.end
    start = end if bar.start is None else bar.start
    first = min(letters - 1, int(start / step))
    return range(first, max(first, min(letters - 1, math.ceil(end / step) - 1)) + 1)


_MAKERS: dict[str, Callable[[Any, int, str], TextPicture]] = {
    "lines": _lines,
    "front": _front,
    "matrix": _matrix,
    "arms": _arms,
    "shares": _shares,
    "units": _units,
    "samples": _samples,
    "gates": _gates,
    "graph": _graph,
    "strip": _strip,
    "timeline": _timeline,
}


# ---- lines of a screen -----------------------------------------------------------------------

#: Kinds of panel that a run which has ended shows first.
RESULTS = ("strip", "arms", "matrix", "front", "gates")


def told(lines: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Return (word, text) pairs as lines of at most `width` columns, the texts aligned."""
    return [
        line for word, text in lines for line in wrapped(f"{word:9s} {text}".rstrip(), width, " " * 10)
    ]


def whole(panel: Panel, run: str, width: int, plain: bool = False) -> list[str]:
    """Return a panel as lines of `width` columns: title, sentence, curves and table."""
    drawn = picture(panel, width, plain)
    lines = wrapped(f"{panel.title}: {panel.says}", width, "  ")
    for text in drawn.curves:
        lines += [text[start : start + width] for start in range(0, len(text), width)] or [""]
    lines += grid(drawn.columns, drawn.rows, width) if drawn.rows else []
    if drawn.more:
        lines.append(f"{drawn.more:,} more: forge show {run} --panel {panel.name}")
    return lines


def fitting(
    panels: Sequence[Panel], run: str, width: int, room: int, plain: bool = False
) -> tuple[list[list[str]], list[str]]:
    """Return (lines of each panel that fits into `room`, lines that name the others).

    A panel is shown whole or not at all.
    """
    shown: list[list[str]] = []
    names = []
    room -= len(rest([panel.name for panel in panels], run, width)) + 1
    for panel in panels:
        lines = whole(panel, run, width, plain)
        if len(lines) <= room:
            shown.append(lines)
            room -= len(lines) + 1
        else:
            names.append(panel.name)
    return shown, rest(names, run, width)


def rest(names: Sequence[str], run: str, width: int) -> list[str]:
    """Return lines that say how to see the panels with these names; empty without names."""
    if not names:
        return []
    text = f"more      {', '.join(names)}: forge show {run} --panel NAME, or --all"
    return wrapped(text, width, " " * 10)
