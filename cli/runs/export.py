"""`forge export`, and what is said when a run has completed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.options import emit, json_option, warn_skipped


@click.command("export")
@click.argument("run")
@click.option("--out", type=click.Path(), help="The champion's folder to write.")
@click.option("--parquet", type=click.Path(), help="A folder for the run's tables; at any time.")
@click.option("--reason", help="Why; it is recorded.")
@json_option
def export_command(
    run: str, out: str | None, parquet: str | None, reason: str | None, as_json: bool
) -> None:
    """Write a run's champion as a Hugging Face folder, with a report; or its log as tables.

    The tables are generations, candidates, evaluations, items and events, as Parquet files.

    \b
    Example:
      forge export 20261121-3fa9c1 --out champion
      forge export 20261121-3fa9c1 --parquet tables
    """
    from runs.errors import ConfigError
    from runs.home import Home

    if out is None and parquet is None:
        raise ConfigError("nothing to write: give --out DIR, --parquet DIR, or both.")
    home = Home.default()
    tables = None if parquet is None else _tables(home, run, Path(parquet), as_json and not out)
    if out is not None:
        _champion(home, run, Path(out), reason, as_json, tables)


def _tables(home: Any, run: str, folder: Path, as_json: bool) -> dict[str, Any]:
    """Write the run's tables, say so, and return what was written."""
    from runs.history.repository import full_name, opened
    from worker.exports import parquet

    store = home.open_store()
    try:
        name = full_name(store, run)
        state, rows = opened(store, name, showing=True)
        parquet.check(folder, state.kind, name)
    finally:
        store.close()
    warn_skipped(state)
    told = {
        "run": name,
        "folder": str(folder.absolute()),
        "rows": parquet.write(folder, state, rows),
    }
    if as_json:
        emit(told)
        return told
    counts = ", ".join(f"{count:,} {table}" for table, count in told["rows"].items())
    click.echo(f"tables:   {told['folder']} ({counts})", err=as_json)
    return told


def _champion(
    home: Any, run: str, out: Path, reason: str | None, as_json: bool, tables: dict[str, Any] | None
) -> None:
    """Write the champion's folder of a run that has one, and record that."""
    from worker.exports import delivery

    state, written = delivery.deliver(home, run, out, reason)
    announce(state, written | ({"tables": tables} if tables else {}), as_json)


def announce(state: Any, data: dict[str, Any], as_json: bool) -> None:
    """Print the result on stdout."""
    if as_json:
        emit(data)
        return
    from cli import kind_views

    kind_views.of(state.kind).announce(state, data)
