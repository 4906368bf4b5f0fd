"""`forge export --format …`: any model in a format of other programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cli.options import emit
from cli.runs.gguf_options import Gguf


@dataclass(frozen=True)
class Options:
    """Options of the command beside the model and the format."""

    out: str | None
    parquet: str | None
    reason: str | None
    type_: str | None
    gguf: Gguf
    as_json: bool
    #: Where at a Hub the export is sent to (`worker.exports.hub.Target`); None: nowhere.
    to: Any

    @property
    def place(self) -> Path:
        """The file or folder to write."""
        return Path(str(self.out))


def write(format_: str, model: str, export_options: Options) -> None:
    """Write a model in one of FORMATS, send it if that was asked for, and say so."""
    what, function = FORMATS[format_]
    _check(export_options, what)
    if format_ != "gguf" and (option := export_options.gguf.first):
        from runs.errors import ConfigError

        raise ConfigError(f"{option} is of a GGUF file: add --format gguf.")
    function(model, export_options)


def _check(export_options: Options, what: str) -> None:
    """Raise ConfigError for options that an export of one model does not have."""
    from runs.errors import ConfigError

    if export_options.out is None:
        raise ConfigError(f"nothing to write: give --out {what}.")
    if export_options.parquet is not None or export_options.reason is not None:
        raise ConfigError(
            "--parquet and --reason are of a run's folder and tables, not of a model in a format of "
            "other programs."
        )


def _tell(text: str) -> None:
    """Print what a long look-up says meanwhile."""
    click.echo(text, err=True)


def _gguf(model: str, export_options: Options) -> None:
    """Write a model's GGUF file, or one of each type, and say so."""
    from runs.errors import ConfigError
    from runs.home import Home
    from worker.exports import gguf_export

    options = export_options.gguf
    keep = None if options.imatrix_out is None else Path(options.imatrix_out)
    if keep is not None and not options.imatrix:
        raise ConfigError("--imatrix-out keeps what --imatrix DATA measures: add it.")
    report = gguf_export.export(
        Home.default(),
        model,
        export_options.place,
        "F16" if export_options.type_ is None else export_options.type_,
        _tell,
        options.ollama,
        options.fallback is not None,
        gguf_export.Text(options.imatrix, options.measure, keep),
    )
    files = report.get("files", [report])
    beside = [Path(report["modelfile"])] if options.ollama else []
    places = [Path(file["file"]) for file in files]
    report |= send(export_options.to, *places, *beside)
    if export_options.as_json:
        emit(report)
        return
    for file in files:
        _say_file(file)
    if "imatrix_tokens" in report:
        suffix = f", kept as {report['imatrix']}" if "imatrix" in report else ""
        click.echo(f"imatrix:  measured on {report['imatrix_tokens']:,} tokens{suffix}")
    if "measured_tokens" in report:
        click.echo(f"measured: on {report['measured_tokens']:,} tokens, in llama.cpp")
    if "modelfile" in report:
        click.echo(f"ollama:   ollama create NAME -f {report['modelfile']}")
        click.echo(f"template: {report['template']}")
    for note in report["notes"]:
        click.echo(f"note:     {note}")
    say_sent(report)


def _say_file(file: Mapping[str, Any]) -> None:
    """Print a GGUF file's size, its loss if it was measured, and which matrices have other types."""
    loss = f", {file['bits_per_byte']:.4f} bits per byte" if "bits_per_byte" in file else ""
    click.echo(f"model:    {file['file']} ({file['bytes']:,} bytes, {file['type']}{loss})")
    matrix_types = file["other_types"]
    for type_ in sorted(set(matrix_types.values())):
        names = [name for name, other in matrix_types.items() if other == type_]
        click.echo(
            f"{type_ + ':':9} {len(names)} matrices, whose rows {file['type']} cannot cut into blocks, "
            f"such as {names[0]}"
        )


def _compressed(model: str, export_options: Options) -> None:
    """Write a model's folder of the format compressed-tensors, and say so."""
    from runs.errors import ConfigError
    from runs.home import Home
    from worker.exports import compressed_export

    if export_options.type_ is None:
        raise ConfigError("--format compressed-tensors needs --type int8 or --type int4.")
    report = compressed_export.export(
        Home.default(), model, export_options.place, export_options.type_, _tell
    )
    report |= send(export_options.to, Path(report["folder"]))
    if export_options.as_json:
        emit(report)
        return
    click.echo(
        f"model:    {report['folder']} ({report['bytes']:,} bytes, {report['matrices']} matrices "
        f"{report['type']} in groups of {report['group']})"
    )
    say_sent(report)


def _bitnet(model: str, export_options: Options) -> None:
    """Write a ternary model's packed folder, and say so."""
    from runs.errors import ConfigError
    from runs.home import Home
    from worker.exports import bitnet_export

    if export_options.type_ is not None:
        raise ConfigError("--type is of another format: add --format gguf, for example.")
    report = bitnet_export.export(Home.default(), model, export_options.place, _tell)
    report |= send(export_options.to, Path(report["folder"]))
    if export_options.as_json:
        emit(report)
        return
    click.echo(
        f"model:    {report['folder']} ({report['bytes']:,} bytes, {report['ternary']} packed matrices)"
    )
    say_sent(report)


def _adapter(model: str, export_options: Options) -> None:
    """Write a model that was trained by adapters as an adapter of its base, and say so."""
    from cli.extract import say
    from runs.errors import ConfigError
    from runs.home import Home
    from worker.exports import adapter_export

    if export_options.type_ is not None:
        raise ConfigError("--type is of another format: add --format gguf, for example.")
    record = adapter_export.export(Home.default(), model, export_options.place)
    record |= send(export_options.to, Path(record["folder"]))
    say(record, export_options.as_json)
    if not export_options.as_json:
        say_sent(record)


def send(to: Any, out: Path, *more: Path) -> dict[str, Any]:
    """Upload an export, and files beside it; return what is said of that."""
    if to is None:
        return {}
    from worker.exports import hub

    files = {name: file for place in (out, *more) for name, file in hub.files_of(place).items()}
    return {"hub": hub.send(to, files, out)}


def say_sent(data: dict[str, Any]) -> None:
    """Print where an export is at a Hub, if it is there."""
    if hub := data.get("hub"):
        click.echo(f"hub:      {hub['url']} ({'private' if hub['private'] else 'public'})")


#: Name → (what --out names, the function that writes it).
FORMATS: dict[str, tuple[str, Callable[[str, Options], None]]] = {
    "gguf": ("FILE.gguf", _gguf),
    "bitnet": ("DIR", _bitnet),
    "compressed-tensors": ("DIR", _compressed),
    "adapter": ("DIR", _adapter),
}
