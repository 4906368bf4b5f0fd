"""A panel of a run as a picture: an SVG or a PNG file. The same panel gives the same bytes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from pydantic import BaseModel

from agent_forge.runs.panels import side_by_side, tables, thinning
from agent_forge.runs.panels.panels import (
    Arms,
    Axis,
    Front,
    Graph,
    Limit,
    Lines,
    Matrix,
    Panel,
    Series,
    Shares,
    Timeline,
)
from agent_forge.runs.panels.picture import Picture, empty

#: Rows of a table that a picture has, and letters of a cell.
ROWS, LETTERS = 30, 40

_VERDICTS = {"better": "C2", "worse": "C3", "level": "C7"}


def picture(panel: Panel, form: Literal["svg", "png"] | str) -> bytes:
    """Return the panel as the bytes of an SVG or PNG file; lines are thinned as for a page."""
    drawn = figure(_printable(thinning.thin(panel)))
    out = io.BytesIO()
    with rc_context({"svg.hashsalt": panel.name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # names in other scripts
        drawn.savefig(out, format=form, metadata={"Date": None} if form == "svg" else None)
    return out.getvalue()


def _printable(value: object) -> Any:
    """Return a panel, or a part of one, with unprintable characters replaced by blanks."""
    if isinstance(value, str):
        return "".join(c if c.isprintable() else " " for c in value)
    if isinstance(value, tuple):
        return tuple(map(_printable, value))
    if isinstance(value, BaseModel):
        parts = {name: _printable(getattr(value, name)) for name in type(value).model_fields}
        return value.model_copy(update=parts)
    return value


def figure(panel: Panel) -> Picture:
    """Return the panel as a matplotlib figure."""
    drawn = empty(8, 4.5)
    axes = drawn.subplots()
    _MAKERS.get(panel.kind, _table)(axes, panel)
    # A $ in a foreign text begins no formula.
    drawn.suptitle(panel.title, parse_math=False)
    axes.set_title(panel.says, fontsize=8, parse_math=False, wrap=True)
    return drawn


def _label(axis: Axis) -> str:
    return f"{axis.name} ({axis.unit})" if axis.unit else axis.name


def _named(axes: Axes, x: Axis, y: Axis) -> None:
    """Label the axes, and make them logarithmic or whole as the panel says."""
    axes.set_xlabel(_label(x), parse_math=False)
    axes.set_ylabel(_label(y), parse_math=False)
    for axis, log, set_scale in ((axes.xaxis, x, axes.set_xscale), (axes.yaxis, y, axes.set_yscale)):
        if log.log:
            set_scale("log")
        elif log.whole:
            axis.set_major_locator(MaxNLocator(integer=True))


def _limits(axes: Axes, limits: Sequence[Limit]) -> None:
    for limit in limits:
        draw = axes.axvline if limit.axis == 0 else axes.axhline
        draw(limit.at, color="black", linewidth=0.8, linestyle=":", label=limit.says)


def _legend(axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    if handles:
        for text in axes.legend(handles, names, fontsize=7).get_texts():
            text.set_parse_math(False)


def _lines(axes: Axes, panel: Lines) -> None:
    """Draw every line; for several seeds a median with a band over all, and faint single lines."""
    colours = {name: f"C{n}" for n, name in enumerate(dict.fromkeys(s.name for s in panel.series))}
    for (name, _), group in side_by_side.groups(panel.series).items():
        middle = side_by_side.summary(group)
        for series in group:
            label = name if series.seed is None else f"{name} (seed {series.seed})"
            _line(axes, series, colours[name], label if middle is None else None)
        if middle is not None:
            _line(axes, middle, colours[name], f"{name} (median of {len(group)} seeds)")
    _limits(axes, panel.limits)
    _named(axes, panel.x, panel.y)
    _legend(axes)


def _line(axes: Axes, series: Series, colour: str, label: str | None) -> None:
    """Draw a line with its band; without a label, faintly and without a band."""
    style = "--" if series.role == "reference" else "-"
    x, y = series.x, [float("nan") if v is None else v for v in series.y]
    if label is None:
        axes.plot(x, y, style, color=colour, linewidth=0.6, alpha=0.4)
        return
    axes.plot(x, y, style, color=colour, label=label, marker="." if len(x) < 50 else "")
    if series.low is not None and series.high is not None:
        band = [[float("nan") if v is None else v for v in end] for end in (series.low, series.high)]
        axes.fill_between(x, band[0], band[1], color=colour, alpha=0.2)


def _front(axes: Axes, panel: Front) -> None:
    """Draw the first two measures as points; the others are in the table of the panel."""
    for name in dict.fromkeys(p.series for p in panel.points):
        for on_front in (False, True):
            points = [p for p in panel.points if p.series == name and p.kept == on_front]
            x, y = ([p.values[axis] for p in points] for axis in (0, 1))
            label = " ".join(filter(None, (name, "front" if on_front else "dominated")))
            axes.scatter(x, y, alpha=1 if on_front else 0.3, label=label if points else None)
    for point in panel.points:
        if point.id == panel.chosen:
            axes.plot(*point.values[:2], "D", color="black", fillstyle="none", label="chosen")
    _limits(axes, panel.limits)
    _named(axes, *panel.axes[:2])
    _legend(axes)


def _matrix(axes: Axes, panel: Matrix) -> None:
    """Draw the values as a table."""
    texts = [[_number(value) for value in row] for row in panel.values]
    _cells(axes, ["", *panel.columns], [[n, *t] for n, t in zip(panel.rows, texts, strict=True)])


def _number(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _arms(axes: Any, panel: Arms) -> None:
    """Draw the leads of our arm with their intervals; if there are none, the arms' values."""
    leads = [arm for arm in panel.arms if arm.lead is not None][::-1]
    arms = leads or [arm for arm in panel.arms if arm.value is not None][::-1]
    for y, arm in enumerate(arms):
        if arm.lead is not None:
            colour, low, value, high = (
                _VERDICTS[arm.lead.verdict],
                arm.lead.low,
                arm.lead.value,
                arm.lead.high,
            )
        else:
            colour, low, value, high = "C0", arm.low, arm.value, arm.high
        if low is not None and high is not None:
            axes.plot([low, high], [y, y], color=colour, linewidth=2)
        axes.plot([value], [y], "o", color=colour)
    if leads:
        axes.axvline(0, color="black", linewidth=0.8)
    if panel.limit is not None:
        axes.axvline(panel.limit, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(arms)), [arm.name for arm in arms], fontsize=8, parse_math=False)
    what = f"{panel.metric.name}, {panel.ours} minus the other (95 %)" if leads else panel.metric.name
    axes.set_xlabel(what, parse_math=False)


def _shares(axes: Axes, panel: Shares) -> None:
    names = [part.name for part in panel.parts]
    if panel.x is None:
        axes.barh(range(len(names)), [part.values[0] for part in panel.parts])
        axes.set_yticks(range(len(names)), names, parse_math=False)
        axes.set_xlabel(panel.metric.name, parse_math=False)
        return
    if panel.parts and panel.at:
        axes.stackplot(panel.at, *(part.values for part in panel.parts), labels=names)
    _named(axes, panel.x, Axis(**panel.metric.model_dump()))
    _legend(axes)


def _graph(axes: Axes, panel: Graph) -> None:
    """Draw nodes from left to right by column; those without a column come first."""
    columns: dict[int, list[str]] = {}
    for node in panel.nodes:
        columns.setdefault(-1 if node.column is None else node.column, []).append(node.id)
    at = {
        id_: (x, (len(ids) - 1) / 2 - y)
        for x, (_, ids) in enumerate(sorted(columns.items()))
        for y, id_ in enumerate(ids)
    }
    for edge in panel.edges:
        ends = at[edge.source], at[edge.target]
        axes.plot(*zip(*ends, strict=True), color="0.7", linewidth=0.8, zorder=1)
    for node in panel.nodes:
        face = "#dcebff" if node.ours else "white"
        axes.annotate(
            node.name[:LETTERS],
            at[node.id],
            ha="center",
            va="center",
            fontsize=7,
            bbox={"boxstyle": "round", "facecolor": face, "edgecolor": "0.4"},
            parse_math=False,
        )
    axes.margins(0.2)
    axes.set_axis_off()


#: State of a bar → its colour.
_BARS = {"done": "C0", "running": "C2", "failed": "C3", "cancelled": "0.6"}


def _timeline(axes: Axes, panel: Timeline) -> None:
    """Draw a row for each lane; failures, and bars whose start is not known, get a mark at the end."""
    for y, lane in enumerate(panel.lanes):
        for bar in lane.bars:
            end = panel.until if bar.end is None else bar.end
            if bar.start is not None:
                axes.barh(y, end - bar.start, left=bar.start, height=0.6, color=_BARS[bar.state])
            if bar.start is None or bar.state == "failed":
                mark = "x" if bar.state == "failed" else "|"
                axes.plot([end], [y], mark, color=_BARS[bar.state] if bar.start is None else "black")
    names = [lane.name[:LETTERS] for lane in panel.lanes]
    axes.set_yticks(range(len(names)), names, fontsize=8, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, panel.until or 1)
    axes.set_xlabel(f"seconds after {panel.began:%Y-%m-%d %H:%M:%S} UTC; x: failed", parse_math=False)


def _table(axes: Axes, panel: Panel) -> None:
    """Draw the newest rows of a panel's table."""
    columns, rows = tables.table(panel)
    texts = [[_number(value) for value in row] for row in rows][-ROWS:]
    _cells(axes, columns, texts)


def _cells(axes: Axes, columns: list[str], rows: list[list[str]]) -> None:
    axes.set_axis_off()
    if not rows:
        return
    texts = [[" ".join(t.split())[:LETTERS] for t in row] for row in (columns, *rows)]
    table = axes.table(texts, loc="center", cellLoc="left", edges="horizontal")
    table.auto_set_font_size(False)
    table.set_fontsize(7)
    for cell in table.get_celld().values():
        cell.get_text().set_parse_math(False)


_MAKERS: dict[str, Callable[[Axes, Any], None]] = {
    "lines": _lines,
    "front": _front,
    "matrix": _matrix,
    "arms": _arms,
    "shares": _shares,
    "graph": _graph,
    "timeline": _timeline,
}
