"""`forge compare`: runs of any kinds side by side. No torch."""

from __future__ import annotations

from typing import Any

import click

from cli import screen
from cli.options import emit, json_option, names_of, say, screen_width, table
from cli.panels import cell
from cli.runs.panels import overview
from cli.runs.replay import places
from runs import kinds
from runs.errors import NotFoundError
from runs.panels.head import Result, in_words, quantity
from runs.panels.panels import Panel
from runs.panels.side_by_side import SideBySide, side_by_side


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN …")
@click.option("--panel", metavar="NAME", help="Show this panel; without it the first of the lines.")
@json_option
def compare_command(runs: tuple[str, ...], panel: str | None, as_json: bool) -> None:
    """Compare runs of any kinds: results, settings that differ, panels of one name.

    It says first if the results can be compared at all, and if not, why. A place of a run, such as
    RUN@57, stands for the run as it was then.

    \b
    Example:
      forge compare 20261121-3fa9c1 20261122-77aa01
      forge compare 20261121-3fa9c1 20261122-77aa01 --panel rivals
    """
    views = [
        kinds.of(state.kind).seen_beside(state, overview(state, rows))
        for state, rows in places(*runs)
    ]
    data = side_by_side(views)
    data = data.model_copy(update={"names": names_of([head.run for head in data.heads])})
    if as_json:
        emit(data.model_dump(mode="json"))
    elif panel is not None:
        _echo_panel(data, panel)
    else:
        _echo(data)


def _echo_panel(data: SideBySide, name: str) -> None:
    """Print the panels of one name. Raises NotFoundError, which names those that there are."""
    panels = _panels(data)
    if name not in panels:
        there = ", ".join(panels) or "none"
        raise NotFoundError(f"these runs have no panel {name!r} in common. They have: {there}.")
    for run, panel in panels[name]:
        say("\n".join(["", *screen.whole(panel, run, screen_width())]))


def _panels(data: SideBySide) -> dict[str, list[tuple[str, Panel]]]:
    """Return name → (run, panel) of all that the runs have in common: lines first."""
    panels: dict[str, list[tuple[str, Panel]]] = {}
    for lines in data.lines:
        panels[lines.name] = [(data.heads[0].run, lines)]
    for beside in data.beside:
        panels[beside.name] = [
            (part.run, part.panel.model_copy(update={"title": f"{part.panel.title}, {name}"}))
            for part in beside.panels
            for name in (data.names.get(part.run, part.run),)
        ]
    return panels


def _echo(data: SideBySide) -> None:
    """Print judgements, results and settings, the first of the lines, and the panels by name."""
    for judgement in data.judgements:
        answer = f"no: {judgement.why_not}" if judgement.why_not else "yes"
        same = "; their lineages are the same, bit for bit" if judgement.same_lineage else ""
        both = (data.names.get(run, run) for run in (judgement.run, judgement.other))
        say(f"comparable {' and '.join(both)}: {answer}{same}")
    table(["run", "kind", "status", "done", "result", "interval", "measured on"], _results(data))
    runs = [data.names.get(head.run, head.run) for head in data.heads]
    if data.settings:
        cells = [[row.name, *map(_setting, row.values)] for row in data.settings]
        table(["setting", *runs], cells, title="settings that differ")
    for lines in data.lines[:1]:
        say("\n".join(["", *screen.whole(lines, runs[0], screen_width())]))
    if names := list(_panels(data)):
        say(f"\npanels in common: {', '.join(names)}")
        say(f"one of them: forge compare {' '.join(runs)} --panel {names[-1]}")


def _results(data: SideBySide) -> list[list[str]]:
    """Return a row for each run: how far it is, and its result."""
    rows = []
    for head in data.heads:
        of = "" if head.of is None else f" of {head.of}"
        done = f"{head.done}{of} {head.unit}s"
        name = data.names.get(head.run, head.run)
        rows.append([name, head.kind, head.status, done, *_result(head.result)])
    return rows


def _result(result: Result | None) -> tuple[str, str, str]:
    """Return a result in words, its interval, and what it was measured on."""
    if result is None:
        return "-", "-", "-"
    metric = result.metric
    words = in_words(metric.name, result.value, metric.unit, metric.better)
    ends = [quantity(end, metric.unit) for end in (result.low, result.high) if end is not None]
    return words, " to ".join(ends) or "-", result.on or "-"


def _setting(value: Any) -> str:
    return cell(value if isinstance(value, str | int | float | None) else str(value))
