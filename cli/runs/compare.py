"""`forge compare`: runs of any kinds side by side. No torch."""

from __future__ import annotations

from typing import Any

import click

from cli import panels
from cli.options import emit, json_option, say, table
from cli.runs.panels import overview
from cli.runs.replay import places
from runs import kinds
from runs.panels.head import Head, Result, in_words
from runs.panels.side_by_side import SideBySide, side_by_side


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN …")
@json_option
def compare_command(runs: tuple[str, ...], as_json: bool) -> None:
    """Compare runs of any kinds: results, settings that differ, panels of one name.

    It says first if the results can be compared at all, and if not, why. A place of a run, such as
    RUN@57, stands for the run as it was then.

    \b
    Example:
      forge compare 20261121-3fa9c1 20261122-77aa01
    """
    seen = [
        kinds.of(state.kind).seen_beside(state, overview(state, rows))
        for state, rows in places(*runs)
    ]
    data = side_by_side(seen)
    emit(data.model_dump(mode="json")) if as_json else _echo(data)


def _echo(data: SideBySide) -> None:
    """Print runs side by side: judgements, results, settings, lines, then the other panels."""
    for judgement in data.judgements:
        answer = f"no: {judgement.why_not}" if judgement.why_not else "yes"
        same = "; their lineages are the same, bit for bit" if judgement.same_lineage else ""
        say(f"comparable {judgement.run} and {judgement.other}: {answer}{same}")
    table(
        ["run", "kind", "status", "done", "result", "interval", "measured on"], _results(data.heads)
    )
    runs = [head.run for head in data.heads]
    if data.settings:
        cells = [[row.name, *map(_setting, row.values)] for row in data.settings]
        table(["setting", *runs], cells, title="settings that differ")
    for lines in data.lines:
        panels.echo(lines, runs[0])
    for beside in data.beside:
        for own in beside.panels:
            title = f"{own.panel.title}, {own.run}"
            panels.echo(own.panel.model_copy(update={"title": title}), own.run)


def _results(heads: tuple[Head, ...]) -> list[list[str]]:
    """Return a row for each run: how far it is, and its result."""
    rows = []
    for head in heads:
        of = "" if head.of is None else f" of {head.of}"
        done = f"{head.done}{of} {head.unit}s"
        rows.append([head.run, head.kind, head.status, done, *_result(head.result)])
    return rows


def _result(result: Result | None) -> tuple[str, str, str]:
    """Return a result in words, its interval, and what it was measured on."""
    if result is None:
        return "-", "-", "-"
    metric = result.metric
    said = in_words(metric.name, result.value, metric.unit, metric.better)
    known = result.low is not None and result.high is not None
    return said, f"{result.low:.4g} to {result.high:.4g}" if known else "-", result.on or "-"


def _setting(value: Any) -> str:
    return panels.cell(value if isinstance(value, str | int | float | None) else str(value))
