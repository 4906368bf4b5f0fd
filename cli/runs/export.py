"""`forge export`, and what is said when a run has completed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.options import emit, json_option, warn_skipped


@click.command("export")
@click.argument("run")
@click.option("--out", type=click.Path(), help="The folder, or the GGUF file, to write.")
@click.option("--parquet", type=click.Path(), help="A folder for the run's tables; at any time.")
@click.option(
    "--format", "format_", type=click.Choice(["folder", "gguf", "bitnet"]), default="folder"
)
@click.option("--type", "type_", help="Of a GGUF file: F32, F16 (default), BF16, Q8_0, Q4_0, …")
@click.option(
    "--fallback",
    type=click.Choice(["F16"]),
    help="Of a GGUF file of type TQ1_0 or TQ2_0: for matrices whose rows are no multiple of 256.",
)
@click.option("--reason", help="Why; it is recorded.")
@json_option
def export_command(
    run: str,
    out: str | None,
    parquet: str | None,
    format_: str,
    type_: str | None,
    fallback: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Write a run's champion as a Hugging Face folder, with a report; or its log as tables.

    The tables are generations, candidates, evaluations, items and events, as Parquet files.

    With --format gguf RUN may be any model (a folder, a Hub id, RUN:ROLE, a registered name); it is
    written as one file for llama.cpp, and nothing is recorded. With --format bitnet it is a ternary
    model, of `forge bitnet`, and becomes a packed folder that transformers loads.

    \b
    Example:
      forge export 20261121-3fa9c1 --out champion
      forge export 20261121-3fa9c1 --parquet tables
      forge export 20261121-3fa9c1 --format gguf --type Q8_0 --out champion.gguf
      forge export 20261121-3fa9c1:model --format bitnet --out packed
    """
    from runs.errors import ConfigError
    from runs.home import Home

    if format_ == "gguf":
        _check_gguf(out, parquet, reason)
        _gguf(run, Path(str(out)), type_ or "F16", as_json, fallback is not None)
        return
    if type_ is not None or fallback is not None:
        what = "--type" if type_ is not None else "--fallback"
        raise ConfigError(f"{what} is of a GGUF file: add --format gguf.")
    if format_ == "bitnet":
        _check_gguf(out, parquet, reason, "DIR")
        _bitnet(run, Path(str(out)), as_json)
        return
    if out is None and parquet is None:
        raise ConfigError("nothing to write: give --out DIR, --parquet DIR, or both.")
    home = Home.default()
    tables = None if parquet is None else _tables(home, run, Path(parquet), as_json and not out)
    if out is not None:
        _champion(home, run, Path(out), reason, as_json, tables)


def _check_gguf(
    out: str | None, parquet: str | None, reason: str | None, what: str = "FILE.gguf"
) -> None:
    """Raise ConfigError for options that an export of one model does not have."""
    from runs.errors import ConfigError

    if out is None:
        raise ConfigError(f"nothing to write: give --out {what}.")
    if parquet is not None or reason is not None:
        raise ConfigError(
            "--parquet and --reason are of a run's folder and tables, not of a model in a format of "
            "other programs."
        )


def _bitnet(model: str, out: Path, as_json: bool) -> None:
    """Write a ternary model's packed folder, and say so."""
    from runs.home import Home
    from worker.exports import bitnet_export

    told = bitnet_export.export(Home.default(), model, out, lambda text: click.echo(text, err=True))
    if as_json:
        emit(told)
        return
    click.echo(
        f"model:    {told['folder']} ({told['bytes']:,} bytes, {told['ternary']} packed matrices)"
    )


def _gguf(model: str, out: Path, type_: str, as_json: bool, fallback: bool) -> None:
    """Write a model's GGUF file, and say so."""
    from runs.errors import UnavailableError
    from runs.home import Home

    try:
        from worker.exports import gguf_export
    except ModuleNotFoundError as error:
        if error.name != "gguf":
            raise
        raise UnavailableError(
            "GGUF files need the package gguf: pip install 'agent-forge[gguf]'."
        ) from error
    told = gguf_export.export(
        Home.default(), model, out, type_, lambda text: click.echo(text, err=True), fallback
    )
    if as_json:
        emit(told)
        return
    click.echo(f"model:    {told['file']} ({told['bytes']:,} bytes, {told['type']})")
    if others := told["other_types"]:
        click.echo(
            f"F16:      {len(others)} matrices, whose rows {told['type']} cannot cut into blocks, such "
            f"as {others[0]}"
        )


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
