"""The report's picture: fitness and diversity by generation, and the champion's leads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.ticker import MaxNLocator

from runs.panels.picture import Picture, empty


def draw(data: dict[str, Any], path: Path) -> None:
    """Draw a completed run's report into `path`; its suffix is the format."""
    drawn = figure(data["generations"], data["rivals"])
    with rc_context({"svg.hashsalt": str(data["run"])}):  # the same picture, the same bytes
        drawn.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def figure(generations: list[dict[str, Any]], rivals: list[dict[str, Any]]) -> Picture:
    """Return fitness and diversity by generation and, if there are rivals, the champion's leads."""
    drawn = empty(10 if rivals else 5.4, 4.2)
    panels = drawn.subplots(1, 2 if rivals else 1, squeeze=False)[0]
    _generations(panels[0], generations)
    if rivals:
        _leads(panels[1], rivals)
    return drawn


def _generations(axes: Any, rows: list[dict[str, Any]]) -> None:
    x = [row["generation"] for row in rows]
    series = (
        ("champion", "champion (selection slice)", "C0", "-"),
        ("best", "best of the generation (search draw)", "C1", "-"),
        ("mean", "mean of the generation", "C7", "--"),
    )
    for key, label, colour, style in series:
        y = [float("nan") if row[key] is None else row[key] for row in rows]
        axes.plot(x, y, style, color=colour, label=label, marker=".")
    axes.set(xlabel="generation", ylabel="fitness (best source = 1)", title="Fitness")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    other = axes.twinx()
    spread = [row["diversity"] for row in rows]
    other.plot(x, spread, ":", color="C2", label="diversity")
    other.set_ylabel("diversity (sources = 1)", color="C2")
    other.set_ylim(0, 1.1 * max(spread, default=1.0) or 1.0)
    handles = [h for a in (axes, other) for h in a.get_legend_handles_labels()[0]]
    axes.legend(
        handles=handles, fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14)
    )


def _leads(axes: Any, rivals: list[dict[str, Any]]) -> None:
    shown = [r for r in rivals if r["lead"] is not None][::-1]
    for y, r in enumerate(shown):
        colour = "C2" if r["beaten"] else "C3" if r["worse"] else "C7"
        axes.plot([r["low"], r["high"]], [y, y], color=colour, linewidth=2)
        axes.plot([r["lead"]], [y], "o", color=colour)
    axes.axvline(0, color="black", linewidth=0.8)
    names = [r["name"] for r in shown]  # text of users: a $ in it begins no formula
    axes.set_yticks(range(len(shown)), names, fontsize=8, parse_math=False)
    axes.set(xlabel="fitness, champion minus rival", title="Champion's lead on test (95 %)")
