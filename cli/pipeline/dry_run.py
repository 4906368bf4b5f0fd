"""`forge pipeline run FILE --dry-run`: what each phase will cost here, and all of them."""

from __future__ import annotations

from typing import Any

import click

from cli.options import emit, say, show_table, tell
from runs.system.durations import duration, size

#: Amount → (heading, how it is said).
_AMOUNTS = {
    "seconds": ("time", duration),
    "disk": ("on disk at the end", size),
    "memory": ("memory at once", size),
}
_HOW = (
    "Times were tried here, or are those of a run with the same settings; bytes are counted. "
    "--json says from what each number is derived."
)


def run(home: Any, plan: Any, checked: dict[str, Any], as_json: bool) -> None:
    """Print the costs of a pipeline's phases; nothing is recorded."""
    from contextlib import closing, nullcontext

    from pipeline.submission import dry_run
    from weights.storage.model_origin import Finder

    click.echo("trying each phase's work here: its start, some steps, some readings", err=True)
    for note in checked["warnings"]:
        click.echo(f"warning: {note}", err=True)
    named, costs = Finder(home, lambda line: click.echo(line, err=True)), []
    there = home.url is not None or home.database.exists()
    with closing(home.open_store()) if there else nullcontext() as store:
        for cost in dry_run.costs(plan, named, store):
            costs.append(cost)
            click.echo(f"tried {cost.label}", err=True)
    report = dry_run.told(costs)
    if as_json:
        emit({**checked, **report})
        return
    _show(report)


def _show(report: dict[str, Any]) -> None:
    """Print the table, and why some of its numbers are not known."""
    rows = [
        [row["label"], row["kind"], *(_amount(row, n) for n in _AMOUNTS)] for row in report["costs"]
    ]
    rows.append(["in all", "", *(_whole(report["in_all"][name], name) for name in _AMOUNTS)])
    show_table(["phase", "kind", *(heading for heading, _ in _AMOUNTS.values())], rows)
    unknown: dict[str, dict[str, None]] = {}
    for row in report["costs"]:
        for name in _AMOUNTS:
            if row[name]["value"] is None:
                unknown.setdefault(row[name]["from"], {})[row["label"]] = None
    say("")
    for why, labels in unknown.items():
        tell(f"{', '.join(labels)}: {why}")
    tell(_HOW)


def _amount(row: dict[str, Any], name: str) -> str:
    value = row[name]["value"]
    return "not known" if value is None else _AMOUNTS[name][1](value)


def _whole(total: dict[str, Any], name: str) -> str:
    if total["value"] is None:
        return "not known"
    least = "at least " if total["without"] else ""
    return least + _AMOUNTS[name][1](total["value"])
