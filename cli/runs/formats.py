"""`forge export --format …`: any model in a format of other programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cli.options import emit


@dataclass(frozen=True)
class Options:
    """Options of the command beside the model and the format."""

    out: str | None
    parquet: str | None
    reason: str | None
    type_: str | None
    ollama: bool
    fallback: str | None
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
    if (given.ollama or given.fallback) and format_ != "gguf":
        from runs.errors import ConfigError

        option = "--ollama" if given.ollama else "--fallback"
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
    """Write a model's GGUF file, and say so."""
    from runs.home import Home
    from worker.exports import gguf_export

    told = gguf_export.export(
        Home.default(),
        model,
        given.place,
        "F16" if given.type_ is None else given.type_,
        _tell,
        given.ollama,
        given.fallback is not None,
    )
    beside = [Path(told["modelfile"])] if given.ollama else []
    told |= send(given.to, Path(told["file"]), *beside)
    if given.as_json:
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
    say_sent(told)


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
    told = adapter_export.export(Home.default(), model, given.place, _tell)
    told |= send(given.to, Path(told["folder"]))
    say(told, given.as_json)
    if not given.as_json:
        say_sent(told)


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
