"""The report's picture: fitness and diversity by generation, and the champion's leads."""

from __future__ import annotations

from io import BytesIO
from typing import Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from agent_forge.events.envelope import Plain
from agent_forge.runs.panels.picture import Picture, empty

FITNESS = "fitness"
#: What the champion is beside a rival → colour of its lead.
COLOURS = {"better": "C2", "level": "C7", "worse": "C3"}


def draw(data: Plain, form: Literal["svg", "png"]) -> bytes:
    """Return the bytes of a picture, SVG or PNG, of a completed run's report."""
    drawn, file = figure(data["generations"], data["rivals"]), BytesIO()
    with rc_context({"svg.hashsalt": str(data["run"])}):  # the same picture, the same bytes
        drawn.savefig(file, format=form, metadata={"Date": None} if form == "svg" else None)
    return file.getvalue()


def figure(generations: list[Plain], rivals: list[Plain]) -> Picture:
    """Return a figure of fitness and diversity by generation and, with rivals, of the leads.

    Scores of different items have different axes: the champion's are of the selection slice, the
    candidates' of each generation's own draw.
    """
    drawn = empty(10 if rivals else 5.4, 6.4)
    columns = 2 if rivals else 1
    grid = drawn.add_gridspec(3, columns)
    rows = [drawn.add_subplot(grid[row, 0]) for row in range(3)]
    _curves(rows[0], generations, {"champion": ("champion", "C0", "-")})
    rows[0].set(title="Champion, selection slice (best source = 1)", ylabel=FITNESS)
    candidates = {"best": ("best", "C1", "-"), "mean": ("mean", "C7", "--")}
    _curves(rows[1], generations, candidates)
    rows[1].set(title="Candidates, each generation's own draw", ylabel=FITNESS)
    rows[1].legend(fontsize=7)
    _curves(rows[2], generations, {"diversity": ("diversity", "C2", ":")})
    rows[2].set(title="Diversity", xlabel="generation", ylabel="sources = 1")
    rows[2].set_ylim(0, 1.1 * max((row["diversity"] for row in generations), default=1.0) or 1.0)
    if rivals:
        _leads(drawn.add_subplot(grid[:, 1]), rivals)
    return drawn


def _curves(axes: Axes, rows: list[Plain], series: dict[str, tuple[str, str, str]]) -> None:
    """Draw fields of the rows into `axes`; `series`: field → label, colour, style of the line."""
    x = [row["generation"] for row in rows]
    for key, (label, colour, style) in series.items():
        y = [float("nan") if row[key] is None else row[key] for row in rows]
        axes.plot(x, y, style, color=colour, label=label, marker=".")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _leads(axes: Axes, rivals: list[Plain]) -> None:
    shown = [r for r in rivals if r["lead"] is not None][::-1]
    for y, r in enumerate(shown):
        colour = COLOURS[r["verdict"] or "level"]
        axes.plot([r["low"], r["high"]], [y, y], color=colour, linewidth=2)
        axes.plot([r["lead"]], [y], "o", color=colour)
    axes.axvline(0, color="black", linewidth=0.8)
    names = [r["name"] for r in shown]  # text of users: a $ in it begins no formula
    axes.set_yticks(range(len(shown)), names, fontsize=8, parse_math=False)
    axes.set(xlabel="fitness, champion minus rival", title="Champion's lead on test (95 %)")
