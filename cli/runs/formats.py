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


def write(format_: str, model: str, given: Options) -> None:
    """Write a model in one of FORMATS, send it if that was asked for, and say so."""
    what, function = FORMATS[format_]
    _check(given, what)
    if format_ != "gguf" and (option := given.gguf.first):
        from runs.errors import ConfigError

        raise ConfigError(f"{option} is of a GGUF file: add --format gguf.")
    function(model, given)


def _check(given: Options, what: str) -> None:
    """Raise ConfigError for options that an export of one model does not have."""
    from runs.errors import ConfigError

    if given.out is None:
        raise ConfigError(f"nothing to write: give --out {what}.")
    if given.parquet is not None or given.reason is not None:
        raise ConfigError(
            "--parquet and --reason are of a run's folder and tables, not of a model in a format of "
            "other programs."
        )


def _tell(text: str) -> None:
    """Print what a long look-up says meanwhile."""
    click.echo(text, err=True)


def _gguf(model: str, given: Options) -> None:
    """Write a model's GGUF file, or one of each type, and say so."""
    from runs.errors import ConfigError
    from runs.home import Home
    from worker.exports import gguf_export

    options = given.gguf
    keep = None if options.imatrix_out is None else Path(options.imatrix_out)
    if keep is not None and not options.imatrix:
        raise ConfigError("--imatrix-out keeps what --imatrix DATA measures: add it.")
    told = gguf_export.export(
        Home.default(),
        model,
        given.place,
        "F16" if given.type_ is None else given.type_,
        _tell,
        options.ollama,
        options.fallback is not None,
        gguf_export.Text(options.imatrix, options.measure, keep),
    )
    files = told.get("files", [told])
    beside = [Path(told["modelfile"])] if options.ollama else []
    places = [Path(file["file"]) for file in files]
    told |= send(given.to, *places, *beside)
    if given.as_json:
        emit(told)
        return
    for file in files:
        _say_file(file)
    if "imatrix_tokens" in told:
        kept = f", kept as {told['imatrix']}" if "imatrix" in told else ""
        click.echo(f"imatrix:  measured on {told['imatrix_tokens']:,} tokens{kept}")
    if "measured_tokens" in told:
        click.echo(f"measured: on {told['measured_tokens']:,} tokens, in llama.cpp")
    if "modelfile" in told:
        click.echo(f"ollama:   ollama create NAME -f {told['modelfile']}")
        click.echo(f"template: {told['template']}")
    for note in told["notes"]:
        click.echo(f"note:     {note}")
    say_sent(told)


def _say_file(file: Mapping[str, Any]) -> None:
    """Print a GGUF file's size, its loss if it was measured, and which matrices have other types."""
    loss = f", {file['bits_per_byte']:.4f} bits per byte" if "bits_per_byte" in file else ""
    click.echo(f"model:    {file['file']} ({file['bytes']:,} bytes, {file['type']}{loss})")
    others = file["other_types"]
    for type_ in sorted(set(others.values())):
        names = [name for name, other in others.items() if other == type_]
        click.echo(
            f"{type_ + ':':9} {len(names)} matrices, whose rows {file['type']} cannot cut into blocks, "
            f"such as {names[0]}"
        )


def _compressed(model: str, given: Options) -> None:
    """Write a model's folder of the format compressed-tensors, and say so."""
    from runs.errors import ConfigError
    from runs.home import Home
    from worker.exports import compressed_export

    if given.type_ is None:
        raise ConfigError("--format compressed-tensors needs --type int8 or --type int4.")
    told = compressed_export.export(Home.default(), model, given.place, given.type_, _tell)
    told |= send(given.to, Path(told["folder"]))
    if given.as_json:
        emit(told)
        return
    click.echo(
        f"model:    {told['folder']} ({told['bytes']:,} bytes, {told['matrices']} matrices "
        f"{told['type']} in groups of {told['group']})"
    )
    say_sent(told)


def _bitnet(model: str, given: Options) -> None:
    """Write a ternary model's packed folder, and say so."""
    from runs.errors import ConfigError
    from runs.home import Home
    from worker.exports import bitnet_export

    if given.type_ is not None:
        raise ConfigError("--type is of another format: add --format gguf, for example.")
    told = bitnet_export.export(Home.default(), model, given.place, _tell)
    told |= send(given.to, Path(told["folder"]))
    if given.as_json:
        emit(told)
        return
    click.echo(
        f"model:    {told['folder']} ({told['bytes']:,} bytes, {told['ternary']} packed matrices)"
    )
    say_sent(told)


def _adapter(model: str, given: Options) -> None:
    """Write a model that was trained by adapters as an adapter of its base, and say so."""
    from cli.extract import say
    from runs.errors import ConfigError
    from runs.home import Home
    from worker.exports import adapter_export

    if given.type_ is not None:
        raise ConfigError("--type is of another format: add --format gguf, for example.")
    record = adapter_export.export(Home.default(), model, given.place)
    record |= send(given.to, Path(record["folder"]))
    say(record, given.as_json)
    if not given.as_json:
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
    if told := data.get("hub"):
        click.echo(f"hub:      {told['url']} ({'private' if told['private'] else 'public'})")


#: Name → (what --out names, the function that writes it).
FORMATS: dict[str, tuple[str, Callable[[str, Options], None]]] = {
    "gguf": ("FILE.gguf", _gguf),
    "bitnet": ("DIR", _bitnet),
    "compressed-tensors": ("DIR", _compressed),
    "adapter": ("DIR", _adapter),
}
