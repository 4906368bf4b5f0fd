"""`forge runs`, `queue`, `show`, `events` and `lineage`: the log, for runs of any kind. No torch."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import click

from agent_forge.cli.options import (
    Json,
    emit,
    home,
    json_option,
    load_run,
    name_of,
    named,
    say,
    screen_width,
    short,
    table,
    tell,
    warn_skipped,
)
from agent_forge.runs import kinds
from agent_forge.runs.kinds import view
from agent_forge.runs.kinds.view import Curve
from agent_forge.runs.panels import tables
from agent_forge.runs.panels.head import Live, Panels
from agent_forge.runs.panels.panels import Panel
from agent_forge.runs.panels.tables import called
from agent_forge.runs.system.durations import rough
from agent_forge.runs.system.plain_text import visible

if TYPE_CHECKING:
    from agent_forge.events import Envelope, EventStore
    from agent_forge.runs.kinds.state import State
    from agent_forge.runs.record.lineage import Child

#: Statuses of runs, as the run list has them.
STATUSES = ("submitted", "running", "paused", "completed", "failed", "cancelled")


def _age(row: Json) -> str:
    """Return the time since a run was submitted as rough words, such as "3 h"."""
    return rough(time.time() - datetime.fromisoformat(row["submitted_at"]).timestamp())


def _under_parents(rows: list[Json]) -> list[Json]:
    """Return the rows, each followed by its child runs', the oldest first; add `depth`, from 0."""
    runs = {row["run"]: row for row in rows}
    parts: dict[str | None, list[Json]] = {}
    for row in rows:
        parts.setdefault(row["part_of"] if row["part_of"] in runs else None, []).append(row)

    def below(run: str | None, depth: int) -> list[Json]:
        children = parts.get(run, [])[:: 1 if run is None else -1]
        return [
            line
            for row in children
            for line in ({**row, "depth": depth}, *below(row["run"], depth + 1))
        ]

    return below(None, 0)


@click.command("runs")
@click.argument("words", nargs=-1)
@click.option("--tag", help="Only runs with this tag.")
@click.option("--kind", help="Only runs of this kind.")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs of this status.")
@click.option("--phases", is_flag=True, help="The runs that others have asked for, too.")
@click.option("--limit", type=click.IntRange(1, 10**9), default=50, show_default=True)
@click.option("--all", "everything", is_flag=True, help="All of them.")
@json_option
def runs_command(
    words: tuple[str, ...],
    tag: str | None,
    kind: str | None,
    status: str | None,
    phases: bool,
    limit: int,
    everything: bool,
    as_json: bool,
) -> None:
    """List the runs, the newest first; with WORDS those that have the text in name, note, owner, ….

    The phases of a pipeline are left out, but with --phases. Every command takes a run's name, its id
    or the beginning of the id.

    \b
    Example:
      forge runs
      forge runs --tag paper --kind evomerge
    """
    from agent_forge.runs import kinds
    from agent_forge.runs.lists import queries

    if kind is not None:
        kinds.of(kind)  # raises for a kind that there is not
    with closing(home().open_store()) as store:
        rows, total = queries.page(
            store,
            None if everything else limit,
            status=status,
            kind=kind,
            tag=tag,
            text=" ".join(words),
            parts=phases,
        )
    if as_json:
        emit(rows)
        return
    if not rows:
        is_filtered = words or tag or kind or status
        none = "no run is like that: list all with `forge runs`"
        click.echo(none if is_filtered else "no runs yet: start one with `forge evo`", err=True)
    _runs_table(_under_parents(rows))
    if total > len(rows):
        click.echo(f"{total - len(rows)} more: forge runs --all", err=True)


def _runs_table(rows: list[Json]) -> None:
    """Print rows of the run list; a narrow terminal gets the columns that the next command needs."""
    from agent_forge.runs.panels.head import in_words

    columns = ["name", "kind", "status", "age", "done", "result", "model", "tags", "owner"]
    columns += ["origin", "id", "submitted (UTC)"]
    cells = [
        [
            "  " * row["depth"] + row["name"],
            row["kind"],
            row["status"],
            _age(row),
            "-" if row["generation"] is None else str(row["generation"]),
            in_words(row["metric"], row["value"], row["unit"], row["better"]),
            short(row["champion"]),
            row["tags"],
            row["owner"],
            f"fork of {row['parent']}" if row["parent"] else "",
            row["run"],
            row["submitted_at"][:19],
        ]
        for row in rows
    ]
    droppable = ["submitted (UTC)", "model", "id", "origin", "owner", "tags", "done", "result"]
    table(columns, cells, droppable=[*droppable, "kind"])


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
    from agent_forge.runs.lists import queries
    from agent_forge.worker.queue.device_table import DeviceTable, named_devices
    from agent_forge.worker.queue.leases import Leases
    from agent_forge.worker.queue.reporting import activity

    with closing(home().open_store()) as store:
        rows = queries.queue(store, None if everything else limit + 1)
        devices, held = (
            named_devices(store, DeviceTable(store.database)),
            Leases(store.database).held(),
        )
        rows = activity.told(rows, devices, held)
    more = not everything and len(rows) > limit
    rows = rows[:limit] if more else rows
    if as_json:
        emit(rows)
        return
    if not rows:
        click.echo("nothing waits: submit a run with `forge submit` or `forge evo`", err=True)
    cells = [
        [
            r["name"],
            r["kind"],
            r["status"],
            _age(r),
            r["waits_for"],
            str(r["priority"]),
            "-" if r["generation"] is None else str(r["generation"]),
            r["owner"],
            r["run"],
            r["submitted_at"][:19],
        ]
        for r in rows
    ]
    columns = ["name", "kind", "status", "age", "waits for", "priority", "done", "owner", "id"]
    columns += ["submitted (UTC)"]
    table(columns, cells, droppable=["submitted (UTC)", "id", "owner", "done", "priority", "kind"])
    if more:
        click.echo("there are more: forge queue --all", err=True)


@click.command("show")
@click.argument("run")
@click.option("--panel", metavar="NAME", help="Only this panel, with all of its data.")
@click.option("--all", "everything", is_flag=True, help="All panels, and not only a screen of them.")
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
    from agent_forge.cli import kind_views

    if panel is None and form != "text":
        raise click.UsageError("--format is for one panel: add --panel NAME.")
    if report and (panel is not None or everything):
        raise click.UsageError("--report has every panel: leave --panel and --all out.")
    if everything and panel is not None:
        raise click.UsageError("--panel shows one panel, --all every one: leave one of both out.")
    state, rows = load_run(run)
    if report:
        text = markdown(state, rows)
        emit({"run": state.run, "report": text}) if as_json else say(text.rstrip())
        return
    if panel is not None:
        write(overview(state, rows), panel, "json" if as_json else form)
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
    view.show(state, lambda: with_now(state, rows), everything)


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
    from agent_forge.runs.history import repository
    from agent_forge.runs.lists import finding

    with closing(home().open_store()) as store:
        name = finding.full_name(store, run)
        for place, row in enumerate(repository.history(store, name), start=1):
            if place > after:
                print_event(row, place, as_json)


def print_event(row: Envelope, place: int, as_json: bool) -> None:
    """Print one event on a line; `place` counts from the beginning of the history."""
    if as_json:
        whole = {"place": place, **row._asdict(), "data": json.loads(row.data)}
        emit(whole, indent=None)
    else:
        from agent_forge.runs.kinds.wording import summary_line

        words = summary_line(row.stream.partition("/")[0], row.type, json.loads(row.data))
        click.echo(visible(f"{place:5d}  {row.recorded_at[:19]}  {row.type:22s} {words}"))


@click.command("lineage")
@click.argument("run")
@click.argument("model", default="", required=False)
@json_option
def lineage_command(run: str, model: str, as_json: bool) -> None:
    """Show what a model of a run was made from, down to given models or to first weights.

    MODEL is a recipe id, the beginning of one, a role, or "champion"; by default the run's result. RUN
    may name the model as well: RUN/champion, RUN:ROLE, or a registered model by id or name. If a model
    that was given to the run was made by another run of this log, what that run made it from follows.

    \b
    Example:
      forge lineage 20261121-3fa9c1 champion
    """
    from agent_forge.runs.lists import family
    from agent_forge.runs.lists.finding import full_name, load

    with closing(home().open_store()) as store:
        generations = (
            family.family(store, full_name(store, run), model) if model else family.named(store, run)
        )
        for node in generations:
            warn_skipped(load(store, node.run, showing=True))
    if as_json:
        emit(
            {
                ancestor.recipe_id: ancestor.recipe
                for group in generations
                for ancestor in reversed(group.ancestors)
            }
        )
        return
    if not generations:
        say(f"no run of this log made model {run}")
    for id_, ancestors in family.by_run(generations).items():
        if id_ != generations[0].run:
            say(f"run {named(id_)}:")
        for node in ancestors:
            say(f"{short(node.recipe_id)}  {node.place:18s} {node.words}")


#: Formats that `forge show --panel` writes, those that are no text last.
FORMATS = ("text", "csv", "json", "svg", "png")


@contextmanager
def _seen(
    state: State, rows: list[Envelope]
) -> Iterator[tuple[EventStore, Sequence[Child], Sequence[float | None]]]:
    """Yield (log, runs that a run delegates, the run's curve); the log is closed at the end."""
    from agent_forge.runs.history.run_cache import Journals, RunCache

    curve = Curve(kinds.of(state.kind).view, state.registry)
    curve.take(rows)
    with closing(home().open_store()) as store:
        with Journals(store, RunCache(store, showing=True)).children(state) as children:
            yield store, children, curve.values


def overview(state: State, rows: list[Envelope]) -> Panels:
    """Return the Panels of a run, head and panels, from its log and those of the runs it delegates."""
    with _seen(state, rows) as (_, children, curve):
        return view.overview(state, curve, children)


def markdown(state: State, rows: list[Envelope]) -> str:
    """Return the report of a run as Markdown text, as it stands now."""
    with _seen(state, rows) as (store, _, curve):
        text = view.full_report(store, state, rows, curve)
    return called(text, state.run, name_of(state.run))


def with_now(state: State, rows: list[Envelope]) -> Panels:
    """Return the Panels of a run; `now` in their head is its current activity, None if it has ended."""
    page = overview(state, rows)
    now = None if state.ended else _now(state)
    return page.model_copy(update={"head": page.head.model_copy(update={"now": now})})


def _now(state: State) -> Live | None:
    from agent_forge.runs.history.run_cache import Journals, RunCache
    from agent_forge.runs.lists import queries
    from agent_forge.worker.queue.device_table import DeviceTable, at_work, named_devices
    from agent_forge.worker.queue.leases import Leases
    from agent_forge.worker.queue.reporting import activity

    store = home().open_store()
    roster, leases = DeviceTable(store.database), Leases(store.database)

    def watched(state: State, task: str = "") -> activity.WatchedRun:
        kind = kinds.of(state.kind)
        count = kind.view.rehearse(state) if kind.view.rehearsable(state) else None
        hands = at_work(state.run, roster, leases)
        return activity.WatchedRun(state, queries.row(store, state.run), hands, count, task)

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
    """Print a panel with all of its rows; without a terminal numbers are as programs read them."""
    from agent_forge.cli.panels import cell, picture

    columns, rows = tables.table(panel)
    tell(f"{panel.title}: {panel.says}")
    for line in picture(panel, screen_width()).curves:
        say(line)
    text = cell if sys.stdout.isatty() else _plain
    table(columns, [[text(value) for value in row] for row in rows])


def _plain(value: object) -> str:
    """Return a value as text: a float with six digits, no separators of thousands, "-" for None."""
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)
