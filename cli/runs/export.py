"""`forge export`, and what is said when a run has completed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.options import emit, json_option, warn_skipped


@click.command("export")
@click.argument("run")
@click.option("--out", type=click.Path(), help="The champion's folder, or the GGUF file, to write.")
@click.option("--parquet", type=click.Path(), help="A folder for the run's tables; at any time.")
@click.option("--format", "format_", type=click.Choice(["folder", "gguf"]), default="folder")
@click.option("--type", "type_", help="Of a GGUF file: F32, F16 (default), BF16, Q8_0, Q4_0, …")
@click.option("--ollama", is_flag=True, help="Write a Modelfile beside the GGUF file.")
@click.option(
    "--push", metavar="OWNER/NAME", help="Upload what --out has to a Hugging Face Hub, too."
)
@click.option("--public", is_flag=True, help="A new repository is public; else it is private.")
@click.option("--reason", help="Why; it is recorded.")
@json_option
def export_command(
    run: str,
    out: str | None,
    parquet: str | None,
    format_: str,
    type_: str | None,
    ollama: bool,
    push: str | None,
    public: bool,
    reason: str | None,
    as_json: bool,
) -> None:
    """Write a run's champion as a Hugging Face folder, with a report; or its log as tables.

    The tables are generations, candidates, evaluations, items and events, as Parquet files.

    With --format gguf RUN may be any model (a folder, a Hub id, RUN:ROLE, a registered name); it is
    written as one file for llama.cpp, and nothing is recorded.

    --push takes the token of HF_TOKEN, or of `hf auth login`, and sends it to HF_ENDPOINT or
    huggingface.co.

    \b
    Example:
      forge export 20261121-3fa9c1 --out champion
      forge export 20261121-3fa9c1 --parquet tables
      forge export 20261121-3fa9c1 --format gguf --type Q8_0 --out champion.gguf
      forge export 20261121-3fa9c1 --out champion --push me/champion
    """
    from runs.errors import ConfigError
    from runs.home import Home

    to = _pushed(push, public, out)
    if format_ == "gguf":
        _check_gguf(out, parquet, reason)
        _gguf(run, Path(str(out)), type_ or "F16", ollama, as_json, to)
        return
    if type_ is not None or ollama:
        raise ConfigError(
            f"--{'type' if type_ else 'ollama'} is of a GGUF file: add --format gguf."
        )
    if out is None and parquet is None:
        raise ConfigError("nothing to write: give --out DIR, --parquet DIR, or both.")
    home = Home.default()
    tables = None if parquet is None else _tables(home, run, Path(parquet), as_json and not out)
    if out is not None:
        _champion(home, run, Path(out), reason, as_json, tables, to)


def _pushed(push: str | None, public: bool, out: str | None) -> Any:
    """Return the place at a Hub that an export is sent to; None if it is not."""
    from runs.errors import ConfigError

    if push is None:
        if public:
            raise ConfigError("--public is of a repository: add --push OWNER/NAME.")
        return None
    if out is None:
        raise ConfigError("--push uploads what --out has: give --out, too.")
    from worker.exports import hub

    return hub.target(push, public)


def _send(to: Any, out: Path, *more: Path) -> dict[str, Any]:
    """Upload an export, and files beside it; return what is said of that."""
    if to is None:
        return {}
    from worker.exports import hub

    files = {name: file for place in (out, *more) for name, file in hub.files_of(place).items()}
    return {"hub": hub.send(to, files, out)}


def _say_sent(data: dict[str, Any]) -> None:
    """Print where an export is at a Hub, if it is there."""
    if told := data.get("hub"):
        click.echo(f"hub:      {told['url']} ({'private' if told['private'] else 'public'})")


def _check_gguf(out: str | None, parquet: str | None, reason: str | None) -> None:
    """Raise ConfigError for options that a GGUF file does not have."""
    from runs.errors import ConfigError

    if out is None:
        raise ConfigError("nothing to write: give --out FILE.gguf.")
    if parquet is not None or reason is not None:
        raise ConfigError(
            "--parquet and --reason are of a run's folder and tables, not of a GGUF file."
        )


def _gguf(model: str, out: Path, type_: str, ollama: bool, as_json: bool, to: Any) -> None:
    """Write a model's GGUF file, and say so."""
    from runs.home import Home
    from worker.exports import gguf_export

    told = gguf_export.export(
        Home.default(), model, out, type_, lambda text: click.echo(text, err=True), ollama
    )
    told |= _send(
        to, Path(told["file"]), *(Path(told[key]) for key in ("modelfile",) if key in told)
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
    if "modelfile" in told:
        click.echo(f"ollama:   ollama create NAME -f {told['modelfile']}")
        click.echo(f"template: {told['template']}")
    for note in told["notes"]:
        click.echo(f"note:     {note}")
    _say_sent(told)


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
    home: Any,
    run: str,
    out: Path,
    reason: str | None,
    as_json: bool,
    tables: dict[str, Any] | None,
    to: Any,
) -> None:
    """Write the champion's folder of a run that has one, and record that."""
    from worker.exports import delivery

    state, written = delivery.deliver(home, run, out, reason)
    sent = _send(to, out)
    announce(state, written | ({"tables": tables} if tables else {}) | sent, as_json)
    if not as_json:
        _say_sent(sent)


def announce(state: Any, data: dict[str, Any], as_json: bool) -> None:
    """Print the result on stdout."""
    if as_json:
        emit(data)
        return
    from cli import kind_views

    kind_views.of(state.kind).announce(state, data)
