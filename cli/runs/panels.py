"""Panels of a run of any kind, as `forge show` draws and exports them. No torch."""

from __future__ import annotations

import sys
from typing import Any

import click

from cli.options import say, screen_width, table, tell
from runs import kinds
from runs.kinds.view import View
from runs.lists.curve import Curve
from runs.panels import markdown as markdown_of
from runs.panels import tables
from runs.panels.head import Live, Panels
from runs.panels.panels import Panel

#: Formats that `forge show --panel` writes, those that are no text last.
FORMATS = ("text", "csv", "json", "svg", "png")


def overview(state: Any, rows: list[Any]) -> Panels:
    """Return head and panels of a run, by its log and by those of the runs that it delegates."""
    from runs.history.journal import Journals
    from runs.history.run_cache import RunCache
    from runs.home import Home

    kind = kinds.of(state.kind)
    curve = Curve(kind, state.registry)
    curve.take(rows)
    if not kind.delegates:
        return kind.overview(state, curve.values)
    store = Home.default().open_store()
    try:
        with Journals(store, RunCache(store, showing=True)).children(state) as children:
            return kind.overview(state, curve.values, children)
    finally:
        store.close()


def markdown(state: Any, rows: list[Any]) -> str:
    """Return a run as Markdown: the report that its kind writes at the end, else head and panels."""
    kind = kinds.of(state.kind)
    if state.completed and type(kind).markdown is not View.markdown:
        return kind.markdown(state, rows)
    return markdown_of.markdown(overview(state, rows))


def with_now(state: Any, rows: list[Any]) -> Panels:
    """Return the same with what the run does now, by the tables of devices and leases."""
    seen = overview(state, rows)
    now = None if state.ended else _now(state)
    return seen.model_copy(update={"head": seen.head.model_copy(update={"now": now})})


def _now(state: Any) -> Live | None:
    from runs.home import Home
    from runs.lists import queries
    from worker.queue.active_tasks import at_work
    from worker.queue.device_table import Roster
    from worker.queue.leases import Leases
    from worker.queue.reporting import activity

    kind, store = kinds.of(state.kind), Home.default().open_store()
    try:
        roster = Roster(store.database)
        hands, row = (
            at_work(state.run, roster, Leases(store.database)),
            queries.row(store, state.run),
        )
        count = kind.rehearse(state) if kind.rehearsable(state) else None
        return activity.live(state, row, hands, roster.devices(), count)
    finally:
        store.close()


def write(seen: Panels, name: str, form: str) -> None:
    """Write one panel with all of its data to stdout. Raises NotFoundError for an unknown panel."""
    panel = tables.find(seen.panels, name, seen.head.run)
    if form == "text":
        _text(panel)
    elif form == "csv":
        click.echo(tables.to_csv(panel), nl=False)
    elif form == "json":
        click.echo(panel.model_dump_json(indent=2))
    else:
        if form == "png" and sys.stdout.isatty():
            raise click.UsageError("a PNG file is not for a terminal: add > FILE.")
        from worker.exports import panel_picture

        sys.stdout.buffer.write(panel_picture.picture(panel, form))
        sys.stdout.flush()


def _text(panel: Panel) -> None:
    """Print a panel with all of its rows; without a terminal as a program reads them."""
    from cli.panels import cell, picture

    columns, rows = tables.table(panel)
    tell(f"{panel.title}: {panel.says}")
    for line in picture(panel, screen_width()).curves:
        say(line)
    text = cell if sys.stdout.isatty() else _plain
    table(columns, [[text(value) for value in row] for row in rows])


def _plain(value: Any) -> str:
    """Return a value without separators of thousands."""
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)
