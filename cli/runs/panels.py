"""Panels of a run of any kind, as `forge show` draws and exports them. No torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import click

from agent_forge.cli.options import home, name_of, say, screen_width, table, tell
from agent_forge.runs import kinds
from agent_forge.runs.lists.curve import Curve
from agent_forge.runs.panels import tables
from agent_forge.runs.panels.head import Live, Panels
from agent_forge.runs.panels.panels import Panel
from agent_forge.runs.panels.tables import called

#: Formats that `forge show --panel` writes, those that are no text last.
FORMATS = ("text", "csv", "json", "svg", "png")


@contextmanager
def _seen(state: Any, rows: list[Any]) -> Iterator[tuple[Any, list[Any], Sequence[Any]]]:
    """Give the log, the runs that a run delegates, and the run's curve."""
    from agent_forge.runs.history.run_cache import Journals, RunCache

    curve = Curve(kinds.of(state.kind), state.registry)
    curve.take(rows)
    with closing(home().open_store()) as store:
        with Journals(store, RunCache(store, showing=True)).children(state) as children:
            yield store, children, curve.values


def overview(state: Any, rows: list[Any]) -> Panels:
    """Return head and panels of a run, by its log and by those of the runs that it delegates."""
    with _seen(state, rows) as (_, children, curve):
        return kinds.of(state.kind).overview(state, curve, children)


def markdown(state: Any, rows: list[Any]) -> str:
    """Return the report of a run for people as Markdown, as it stands now."""
    with _seen(state, rows) as (store, children, curve):
        text = kinds.of(state.kind).full_report(store, state, rows, children, curve)
    return called(text, state.run, name_of(state.run))


def with_now(state: Any, rows: list[Any]) -> Panels:
    """Return the same with what the run does now, by the tables of devices and leases."""
    page = overview(state, rows)
    now = None if state.ended else _now(state)
    return page.model_copy(update={"head": page.head.model_copy(update={"now": now})})


def _now(state: Any) -> Live | None:
    from agent_forge.runs.history.run_cache import Journals, RunCache
    from agent_forge.runs.lists import queries
    from agent_forge.worker.queue.device_table import Roster, at_work, named_devices
    from agent_forge.worker.queue.leases import Leases
    from agent_forge.worker.queue.reporting import activity

    store = home().open_store()
    roster, leases = Roster(store.database), Leases(store.database)

    def watched(state: Any, task: str = "") -> activity.Watched:
        kind = kinds.of(state.kind)
        count = kind.rehearse(state) if kind.rehearsable(state) else None
        hands = at_work(state.run, roster, leases)
        return activity.Watched(state, queries.row(store, state.run), hands, count, task)

    try:
        with Journals(store, RunCache(store, showing=True)).children(state) as children:
            parts = [watched(c.state, c.task) for c in activity.open_parts(state, children)]
            return activity.live(watched(state), named_devices(store, roster), parts)
    finally:
        store.close()


def write(page: Panels, name: str, form: str) -> None:
    """Write one panel with all of its data to stdout. Raises NotFoundError for an unknown panel."""
    panel = tables.find(page.panels, name, page.head.run)
    if form == "text":
        _text(panel)
    elif form == "csv":
        click.echo(tables.to_csv(panel), nl=False)
    elif form == "json":
        click.echo(panel.model_dump_json(indent=2))
    else:
        if form == "png" and sys.stdout.isatty():
            raise click.UsageError("a PNG file is not for a terminal: add > FILE.")
        from agent_forge.worker.exports import panel_picture

        sys.stdout.buffer.write(panel_picture.picture(panel, form))
        sys.stdout.flush()


def _text(panel: Panel) -> None:
    """Print a panel with all of its rows; without a terminal as a program reads them."""
    from agent_forge.cli.panels import cell, picture

    columns, rows = tables.table(panel)
    tell(f"{panel.title}: {panel.says}")
    for line in picture(panel, screen_width()).curves:
        say(line)
    text = cell if sys.stdout.isatty() else _plain
    table(columns, [[text(value) for value in row] for row in rows])


def _plain(value: Any) -> str:
    """Return a value without separators of thousands."""
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)
