"""`forge runs`, `show`, `events`, `lineage`: reading the log. No torch."""

from __future__ import annotations

import json
from typing import Any

import click

from cli.options import emit, json_option, number, say, short, table, warn_skipped
from runs.system.plain_text import visible


def _home() -> Any:
    from runs.home import Home

    return Home.default()


def _load(run: str) -> tuple[Any, list[Any]]:
    """The run's state and rows."""
    from evomerge.run.state import RunState
    from runs.history.repository import full_name, history, load_of

    store = _home().open_store()
    try:
        state = load_of(RunState, store, run, showing=True)
        warn_skipped(state)
        rows = list(history(store, full_name(store, run)))
        return state, [row for row in rows if RunState.registry.knows(row)]
    finally:
        store.close()


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
    columns = ["run", "kind", "status", "owner", "submitted (UTC)", "done", "result", "score", ""]
    cells = [
        [r["run"], r["kind"], r["status"], r["owner"], r["submitted_at"][:19],
         "-" if r["generation"] is None else str(r["generation"]),
         short(r["champion"]), number(r["score"]),
         f"fork of {r['parent']}" if r["parent"] else ""]
        for r in rows
    ]  # fmt: skip
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
    from worker.queue import wait_reason
    from worker.queue.device_table import Roster

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
        [r["run"], r["kind"], r["status"], r["owner"], str(r["priority"]), r["submitted_at"][:19],
         "-" if r["generation"] is None else str(r["generation"]), r["waits_for"]]
        for r in rows
    ]  # fmt: skip
    columns = ["run", "kind", "status", "owner", "priority", "submitted (UTC)", "done", "waits for"]
    table(columns, cells)
    if more:
        click.echo("there are more: forge queue --all", err=True)


@click.command("show")
@click.argument("run")
@json_option
def show_command(run: str, as_json: bool) -> None:
    """Show a run: champion, scores, diversity, time spent.

    \b
    Example:
      forge show 20261121-3fa9c1
    """
    from evomerge.recipes.recipe import label
    from evomerge.reports import report

    state, rows = _load(run)
    if state.started is None:
        what = {"run": state.run, "status": state.status}
        if state.failed:
            what["reason"] = state.failed.reason
        emit(what) if as_json else say("  ".join(f"{k} {v}" for k, v in what.items()))
        return
    data = report.report(state, rows)
    if state.failed:
        data["reason"] = state.failed.reason
    if as_json:
        emit(data)
        return
    click.echo(f"run       {state.run}  {state.status}")
    if state.failed:
        say(f"reason    {state.failed.reason}")
    if data["forked_from"]:
        click.echo(f"fork of   {data['forked_from']}")
    say(f"models    {', '.join(s.name for s in state.started.sources)}")
    say(f"base      {state.started.base.name}")
    if state.champion:
        name = label(state.recipes[state.champion], state.recipes)
        score = state.champions[-1].score
        click.echo(f"champion  {short(state.champion)}  {name}  selection score {score:.4f}")
    cells = [
        [str(g["generation"]), number(g["best"]), number(g["mean"]), number(g["champion"]),
         number(g["diversity"], ".2f"), g["level"]]
        for g in data["generations"]
    ]  # fmt: skip
    table(["generation", "best", "mean", "champion", "diversity", ""], cells)
    if state.completed:
        say(data["verdict"]["sentence"])


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
    """One event on a line; `place` counts from the beginning of the history."""
    if as_json:
        whole = {"place": place, **row._asdict(), "data": json.loads(row.data)}
        emit(whole, indent=None)
    else:
        from runs.kinds.wording import gist

        told = gist(row.stream.partition("/")[0], row.type, json.loads(row.data))
        click.echo(visible(f"{place:5d}  {row.recorded_at[:19]}  {row.type:22s} {told}"))


@click.command("lineage")
@click.argument("run")
@click.argument("candidate", default="champion")
@json_option
def lineage_command(run: str, candidate: str, as_json: bool) -> None:
    """Show what a candidate was made from, down to the sources.

    CANDIDATE is a recipe id, the beginning of one, or "champion" (default).

    \b
    Example:
      forge lineage 20261121-3fa9c1 champion
    """
    from evomerge.recipes.recipe import closure
    from evomerge.run import candidates

    state, _ = _load(run)
    recipe_id = candidates.find(state, candidate)
    family = closure(recipe_id, state.recipes)
    if as_json:
        emit({id_: recipe.model_dump(mode="json") for id_, recipe in family.items()})
        return
    for id_, recipe in reversed(family.items()):
        where = candidates.place(state, id_)
        say(f"{short(id_)}  {where:18s} {candidates.describe(state, id_, recipe)}")
