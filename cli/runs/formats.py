"""`forge export --format …`: any model in a format of other programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cli.options import emit
from runs.errors import ConfigError
from worker.exports import formats


def write(
    format_: str, model: str, out: str | None, options: formats.Options, to: Any, as_json: bool
) -> None:
    """Write a model in a format of other programs, send it to a Hub if that was asked for, and say so.

    `to` is the place at a Hub (`worker.exports.hub.Target`); None: nowhere. Raises ForgeError.
    """
    from runs.home import Home

    formats.check(format_, options)
    what, say_written = FORMATS[format_]
    if out is None:
        raise ConfigError(f"nothing to write: give --out {what}.")
    written = formats.write(Home.default(), model, Path(out), format_, options, _tell)
    if format_ == "gguf":
        beside = [Path(written["modelfile"])] if options.gguf.ollama else []
        files = written.get("files", [written])
        written |= send(to, *(Path(file["file"]) for file in files), *beside)
    else:
        written |= send(to, Path(written["folder"]))
    if as_json:
        emit(written)
        return
    say_written(written)
    say_sent(written)


def _tell(text: str) -> None:
    """Print what a long look-up says meanwhile."""
    click.echo(text, err=True)


def _gguf(written: formats.Written) -> None:
    """Print the GGUF files that were written, and what is beside them."""
    for file in written.get("files", [written]):
        _say_file(file)
    if "imatrix_tokens" in written:
        suffix = f", kept as {written['imatrix']}" if "imatrix" in written else ""
        click.echo(f"imatrix:  measured on {written['imatrix_tokens']:,} tokens{suffix}")
    if "measured_tokens" in written:
        click.echo(f"measured: on {written['measured_tokens']:,} tokens, in llama.cpp")
    if "modelfile" in written:
        click.echo(f"ollama:   ollama create NAME -f {written['modelfile']}")
        click.echo(f"template: {written['template']}")
    for note in written["notes"]:
        click.echo(f"note:     {note}")


def _say_file(file: formats.Written) -> None:
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


def _compressed(written: formats.Written) -> None:
    """Print the folder of the format compressed-tensors."""
    click.echo(
        f"model:    {written['folder']} ({written['bytes']:,} bytes, {written['matrices']} matrices "
        f"{written['type']} in groups of {written['group']})"
    )


def _bitnet(written: formats.Written) -> None:
    """Print the packed folder of a ternary model."""
    click.echo(
        f"model:    {written['folder']} ({written['bytes']:,} bytes, {written['ternary']} packed "
        "matrices)"
    )


def _adapter(written: formats.Written) -> None:
    """Print the folder of an adapter."""
    from cli.extract import say

    say(written, False)


def send(to: Any, out: Path, *more: Path) -> formats.Written:
    """Upload an export, and files beside it; return what is said of that."""
    if to is None:
        return {}
    from worker.exports import hub

    files = {name: file for place in (out, *more) for name, file in hub.files_of(place).items()}
    return {"hub": hub.send(to, files, out)}


def say_sent(data: formats.Written) -> None:
    """Print where an export is at a Hub, if it is there."""
    if hub := data.get("hub"):
        click.echo(f"hub:      {hub['url']} ({'private' if hub['private'] else 'public'})")


#: Name → (what --out names, the function that prints what was written).
FORMATS: dict[str, tuple[str, Callable[[formats.Written], None]]] = {
    "gguf": ("FILE.gguf", _gguf),
    "bitnet": ("DIR", _bitnet),
    "compressed-tensors": ("DIR", _compressed),
    "adapter": ("DIR", _adapter),
}
