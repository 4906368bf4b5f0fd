"""Head and panels of a run as lines of a screen: whole or named, never cut. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from cli.options import grid, wrapped
from cli.panels import picture
from runs.panels.panels import Panel

#: Kinds of panel that a run which has ended shows first.
RESULTS = ("strip", "arms", "matrix", "front", "gates")


def told(lines: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Return (word, text) as lines of at most `width` columns, the texts under one another."""
    return [
        line
        for word, text in lines
        for line in wrapped(f"{word:9s} {text}".rstrip(), width, " " * 10)
    ]


def whole(panel: Panel, run: str, width: int, plain: bool = False) -> list[str]:
    """Return a panel as lines of `width` columns: title, what it says, curves and table."""
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
    """Return the panels that fit into `room` lines, and those lines that name the others.

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


def results_first(panels: Sequence[Panel]) -> list[Panel]:
    """Return the panels of a run that has ended: what was measured, before how it came about."""
    return sorted(panels, key=lambda panel: panel.kind not in RESULTS)


def rest(names: Sequence[str], run: str, width: int) -> list[str]:
    """Return where the panels are that are not shown, as lines."""
    if not names:
        return []
    text = f"more      {', '.join(names)}: forge show {run} --panel NAME, or --all"
    return wrapped(text, width, " " * 10)
