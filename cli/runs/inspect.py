"""`forge runs`, `queue`, `show`, `events`: reading the log, for runs of any kind. No torch."""

from __future__ import annotations

import json
from typing import Any

import click

from cli.options import emit, json_option, load_run, number, say, short, table
from runs.system.plain_text import visible


def _home() -> Any:
    from runs.home import Home

    return Home.default()


@click.command("runs")
@click.option("--limit", type=click.IntRange(1, 10**9), default=50, show_default=True)
@click.option("--all", "everything", is_flag=True, help="All of them.")
@json_option
def runs_command(limit: int, everything: bool, as_json: bool) -> None:
    """List the runs, the newest first.

    \b
    Example:
      forge runs
    """
    from runs.lists import queries

    store = _home().open_store()
    try:
        rows, total = queries.runs(store, None if everything else limit)
    finally:
        store.close()
    if as_json:
        emit(rows)
        return
    if not rows:
        click.echo("no runs yet: start one with `forge evo`", err=True)
    columns = [
        "run",
        "kind",
        "status",
        "owner",
        "submitted (UTC)",
        "done",
        "result",
        "score",
        "origin",
    ]
    cells = [
        [
            r["run"],
            r["kind"],
            r["status"],
            r["owner"],
            r["submitted_at"][:19],
            "-" if r["generation"] is None else str(r["generation"]),
            short(r["champion"]),
            number(r["score"]),
            f"fork of {r['parent']}" if r["parent"] else "",
        ]
        for r in rows
    ]
    table(columns, cells)
    if total > len(rows):
        click.echo(f"{total - len(rows)} more: forge runs --all", err=True)


@click.command("queue")
@click.option("--limit", type=click.IntRange(1, 10**9), default=50, show_default=True)
@click.option("--all", "everything", is_flag=True, help="All of them.")
@json_option
def queue_command(limit: int, everything: bool, as_json: bool) -> None:
    """List the runs that wait or are under way, the highest priority first.

    \b
    Example:
      forge queue
    """
    from runs.lists import queries
    from worker.queue.device_table import Roster
    from worker.queue.reporting import wait_reason

    store = _home().open_store()
    try:
        rows = queries.queue(store, None if everything else limit + 1)
        devices = Roster(store.database).devices()
        rows = [{**row, "waits_for": wait_reason.reason(row, devices)} for row in rows]
    finally:
        store.close()
    more = not everything and len(rows) > limit
    rows = rows[:limit] if more else rows
    if as_json:
        emit(rows)
        return
    if not rows:
        click.echo("nothing waits: submit a run with `forge submit` or `forge evo`", err=True)
    cells = [
        [
            r["run"],
            r["kind"],
            r["status"],
            r["owner"],
            str(r["priority"]),
            r["submitted_at"][:19],
            "-" if r["generation"] is None else str(r["generation"]),
            r["waits_for"],
        ]
        for r in rows
    ]
    columns = ["run", "kind", "status", "owner", "priority", "submitted (UTC)", "done", "waits for"]
    table(columns, cells)
    if more:
        click.echo("there are more: forge queue --all", err=True)


@click.command("show")
@click.argument("run")
@click.option("--panel", metavar="NAME", help="Only this panel, with all of its data.")
@click.option(
    "--all", "everything", is_flag=True, help="All panels, and not only a screen of them."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "csv", "json", "svg", "png"]),
    default="text",
    show_default=True,
    help="Format of --panel, on stdout.",
)
@click.option("--report", is_flag=True, help="Its report, or head and panels, as Markdown.")
@json_option
def show_command(
    run: str, panel: str | None, everything: bool, form: str, report: bool, as_json: bool
) -> None:
    """Show a run on one screen: how far it is, its result, and the most telling of its panels.

    The other panels are named: --panel shows one with all of its data, --all shows every panel.

    \b
    Example:
      forge show 20261121-3fa9c1
      forge show 20261121-3fa9c1 --panel scores
      forge show 20261121-3fa9c1 --panel scores --format csv > scores.csv
      forge show 20261121-3fa9c1 --report > report.md
    """
    from cli import kind_views
    from cli.runs import panels

    if panel is None and form != "text":
        raise click.UsageError("--format is for one panel: add --panel NAME.")
    if report and (panel is not None or everything):
        raise click.UsageError("--report has every panel: leave --panel and --all out.")
    if everything and panel is not None:
        raise click.UsageError("--panel shows one panel, --all every one: leave one of both out.")
    state, rows = load_run(run)
    if report:
        text = panels.markdown(state, rows)
        emit({"run": state.run, "report": text}) if as_json else say(text.rstrip())
        return
    if panel is not None:
        panels.write(panels.overview(state, rows), panel, "json" if as_json else form)
        return
    if state.started is None:
        what = {"run": state.run, "status": state.status}
        if state.failed:
            what["reason"] = state.failed.reason
        emit(what) if as_json else say("  ".join(f"{k} {v}" for k, v in what.items()))
        return
    view = kind_views.of(state.kind)
    if as_json:
        reason = {"reason": state.failed.reason} if state.failed else {}
        emit({**view.summary(state, rows), **reason})
        return
    view.show(state, lambda: panels.with_now(state, rows), everything)


@click.command("events")
@click.argument("run")
@click.option("--after", type=int, default=0, help="Only events after this one.")
@json_option
def events_command(run: str, after: int, as_json: bool) -> None:
    """Print the events of a run, one a line.

    \b
    Example:
      forge events 20261121-3fa9c1 --json | head -n 3
    """
    from runs.history import repository

    store = _home().open_store()
    try:
        name = repository.full_name(store, run)
        for place, row in enumerate(repository.history(store, name), start=1):
            if place > after:
                print_event(row, place, as_json)
    finally:
        store.close()


def print_event(row: Any, place: int, as_json: bool) -> None:
    """Print one event on a line; `place` counts from the beginning of the history."""
    if as_json:
        whole = {"place": place, **row._asdict(), "data": json.loads(row.data)}
        emit(whole, indent=None)
    else:
        from runs.kinds.wording import gist

        told = gist(row.stream.partition("/")[0], row.type, json.loads(row.data))
        click.echo(visible(f"{place:5d}  {row.recorded_at[:19]}  {row.type:22s} {told}"))
